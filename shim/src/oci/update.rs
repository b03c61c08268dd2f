//! `update`: other limits, by a file or by flags.

use std::io::{self, Read};
use std::path::Path;

use runtime::oci::{Error, LinuxResources};
use serde_json::{Map, Value, json};

use super::cli::Update;

/// The limits that the command line asks for.
pub fn resources(asked: &Update) -> Result<LinuxResources, Error> {
    let fail = |why: String| Error::Step { what: "reading the resources".into(), why };
    let value = match &asked.resources {
        Some(file) => {
            let text = read(file).map_err(|why| fail(why.to_string()))?;
            serde_json::from_str(&text).map_err(|why| fail(why.to_string()))?
        }
        None => of_flags(asked),
    };
    serde_json::from_value(value).map_err(|why| fail(why.to_string()))
}

fn read(file: &Path) -> io::Result<String> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn of_flags(asked: &Update) -> Value {
    let flags = [
        ("memory", "limit", asked.memory.map(Value::from)),
        ("memory", "reservation", asked.memory_reservation.map(Value::from)),
        ("memory", "swap", asked.memory_swap.map(Value::from)),
        ("cpu", "shares", asked.cpu_share.map(Value::from)),
        ("cpu", "period", asked.cpu_period.map(Value::from)),
        ("cpu", "quota", asked.cpu_quota.map(Value::from)),
        ("cpu", "cpus", asked.cpuset_cpus.clone().map(Value::from)),
        ("cpu", "mems", asked.cpuset_mems.clone().map(Value::from)),
        ("pids", "limit", asked.pids_limit.map(Value::from)),
        ("blockIO", "weight", asked.blkio_weight.map(Value::from)),
    ];
    let mut resources = Map::new();
    for (controller, name, value) in flags {
        if let Some(value) = value {
            let of = resources.entry(controller).or_insert_with(|| json!({}));
            of[name] = value;
        }
    }
    Value::Object(resources)
}
