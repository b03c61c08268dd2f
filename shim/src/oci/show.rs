//! Containers as `state`, `list`, `ps` and `events` show them, in runc's forms.

use std::io::{self, Write};
use std::process::Command;
use std::time::Duration;

use runtime::oci::{self, Error, Record, Runtime, Sample, Status};
use serde_json::{Value, json};

use super::cli::ListFormat;
use crate::show::out;

/// Prints the state of a container.
pub fn state(runtime: &Runtime, id: &str) -> Result<(), Error> {
    let record = runtime.record(id)?;
    let shown = shown(runtime, &record)?;
    print(&serde_json::to_string_pretty(&shown).unwrap_or_default());
    Ok(())
}

fn shown(runtime: &Runtime, record: &Record) -> Result<Value, Error> {
    let status = runtime.status(record)?;
    let mut shown = json!({
        "ociVersion": oci::VERSION,
        "id": record.id,
        "pid": record.pid_or_zero(),
        "status": status.name(),
        "bundle": record.bundle,
        "rootfs": record.rootfs,
        "created": record.created,
        "owner": record.owner_name(),
    });
    if !record.annotations.is_empty() {
        shown["annotations"] = json!(record.annotations);
    }
    Ok(shown)
}

/// Lists all containers.
pub fn list(runtime: &Runtime, format: ListFormat, quiet: bool) -> Result<(), Error> {
    let records = runtime.list()?;
    if quiet {
        records.iter().for_each(|record| out(&record.id));
        return Ok(());
    }
    // One that is removed at this moment is not there.
    let shown: Vec<Value> = records.iter().filter_map(|record| self::shown(runtime, record).ok()).collect();
    if format == ListFormat::Json {
        print(&Value::Array(shown).to_string());
        return Ok(());
    }
    let columns = ["id", "pid", "status", "bundle", "created", "owner"];
    let mut rows = vec![columns.map(str::to_uppercase).to_vec()];
    let cell = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    rows.extend(shown.iter().map(|one| columns.map(|column| cell(&one[column])).to_vec()));
    let widths: Vec<usize> =
        (0..columns.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    for row in rows {
        let line: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<0$}", width + 4)).collect();
        out(line.trim_end());
    }
    Ok(())
}

/// Lists the processes of a container.
pub fn ps(runtime: &Runtime, id: &str, format: ListFormat, arguments: &[String]) -> Result<(), Error> {
    let members = runtime.members(&runtime.record(id)?)?;
    if format == ListFormat::Json {
        print(&json!(members).to_string());
        return Ok(());
    }
    let usual = ["-ef".to_owned()];
    let arguments = if arguments.is_empty() { &usual[..] } else { arguments };
    let fail = |why: String| Error::Step { what: "running ps".into(), why };
    let output = Command::new("ps").args(arguments).output().map_err(|why| fail(why.to_string()))?;
    if !output.status.success() {
        return Err(fail(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let Some(column) = head.split_ascii_whitespace().position(|title| title == "PID") else {
        return Err(fail("its output has no column PID".into()));
    };
    out(head);
    let of = |line: &str| line.split_ascii_whitespace().nth(column).and_then(|word| word.parse::<i32>().ok());
    lines.filter(|line| of(line).is_some_and(|pid| members.contains(&pid))).for_each(out);
    Ok(())
}

/// Prints what a container uses, once or until it ends.
pub fn events(runtime: &Runtime, id: &str, interval: &str, once: bool) -> Result<(), Error> {
    let every = duration(interval).ok_or_else(|| Error::Step {
        what: "reading --interval".into(),
        why: format!("{interval:?} is no time as 5s"),
    })?;
    let record = runtime.record(id)?;
    loop {
        let sample = runtime.sample(&record)?;
        print(&json!({"type": "stats", "id": id, "data": stats(&sample)}).to_string());
        if once {
            return Ok(());
        }
        std::thread::sleep(every);
        if runtime.status(&record)? == Status::Stopped {
            return Ok(());
        }
    }
}

/// As Go writes times: `5s`, `1m30s`, `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let units = [("ms", 0.001), ("us", 0.000_001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let (unit, seconds) = units.into_iter().find(|(unit, _)| rest[end..].starts_with(unit))?;
        total += Duration::try_from_secs_f64(number * seconds).ok()?;
        rest = &rest[end + unit.len()..];
    }
    (!total.is_zero()).then_some(total)
}

/// In the form of runc's `types/events.go`, which containerd and others read.
fn stats(sample: &Sample) -> Value {
    let usage = &sample.cpu.usage;
    let memory = |data: &oci::MemoryData| json!({"usage": data.usage, "max": data.max_usage, "failcnt": data.fail_count, "limit": data.limit});
    let blocks = |entries: &[oci::BlockStat]| -> Value {
        let one = |e: &oci::BlockStat| json!({"major": e.major, "minor": e.minor, "op": e.op_type.as_deref().unwrap_or(""), "value": e.value});
        entries.iter().map(one).collect()
    };
    let hugetlb: serde_json::Map<String, Value> = sample
        .hugetlb
        .iter()
        .map(|(size, of)| (size.clone(), json!({"usage": of.usage, "max": of.max_usage, "failcnt": of.fail_count})))
        .collect();
    json!({
        "cpu": {
            "usage": {
                "total": usage.usage_total,
                "percpu": usage.per_core_usage_total,
                "kernel": usage.usage_kernel,
                "user": usage.usage_user,
            },
            "throttling": {
                "periods": sample.cpu.throttling.periods,
                "throttledPeriods": sample.cpu.throttling.throttled_periods,
                "throttledTime": sample.cpu.throttling.throttled_time,
            },
        },
        "memory": {
            "cache": sample.memory.cache,
            "usage": memory(&sample.memory.memory),
            "swap": memory(&sample.memory.memswap),
            "kernel": memory(&sample.memory.kernel),
            "kernelTCP": memory(&sample.memory.kernel_tcp),
            "raw": sample.memory.stats,
        },
        "pids": {"current": sample.pids.current, "limit": sample.pids.limit},
        "blkio": {
            "ioServiceBytesRecursive": blocks(&sample.blkio.service_bytes),
            "ioServicedRecursive": blocks(&sample.blkio.serviced),
        },
        "hugetlb": hugetlb,
        "intel_rdt": {},
        "network_interfaces": null,
    })
}

/// JSON, which keeps control characters to itself.
fn print(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_go_writes_them() {
        let known = [("5s", 5000), ("1m30s", 90_000), ("500ms", 500), ("1.5h", 5_400_000)];
        for (text, milliseconds) in known {
            assert_eq!(duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "5", "s", "5x", "0s", "-5s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
