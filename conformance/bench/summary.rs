//! What the samples say: medians, least values, ratios, and where smcp is against its budget.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::sample::{Contender, Part};
use crate::world::{SERVER, World};

/// All figures of a run.
pub struct Summary {
    machine: Value,
    parts: Vec<Table>,
    flush: Row,
    goals: Vec<Goal>,
}

struct Table {
    title: &'static str,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    runs: usize,
    wall: f64,
    least: f64,
    /// NaN where it could not be counted.
    cpu: f64,
}

/// A line of the budget in design.md, with what was measured in milliseconds or as a ratio.
struct Goal {
    text: &'static str,
    measured: f64,
    most: f64,
}

impl Summary {
    /// Sums up both parts.
    pub fn of(world: &World, cage: &Part<'_>, server: &Part<'_>) -> Summary {
        let (cage_table, server_table) = (Table::of(cage), Table::of(server));
        let flush = Row::of("flush", &cage.flushes, &[]);
        let goals = goals(&cage_table, &server_table, &flush);
        Summary { machine: machine(world), parts: vec![cage_table, server_table], flush, goals }
    }

    /// The figures for another program, in milliseconds.
    pub fn to_json(&self) -> String {
        let part = |table: &Table| {
            let bare = table.wall("bare");
            let rows = table.rows.iter().map(|row| (row.name.to_owned(), row.to_json(bare, table.wall("bubblewrap"))));
            json!({"title": table.title, "contenders": rows.collect::<serde_json::Map<_, _>>()})
        };
        let goals = self.goals.iter().map(|goal| {
            json!({"goal": goal.text, "measured": goal.measured, "most": goal.most, "reached": goal.is_reached()})
        });
        let whole = json!({
            "machine": self.machine,
            "cage": part(&self.parts[0]),
            "server": part(&self.parts[1]),
            "flush": {"wall_ms": self.flush.wall, "least_ms": self.flush.least},
            "budget": goals.collect::<Vec<_>>(),
        });
        format!("{whole:#}\n")
    }
}

/// The lines of the speed budget that this benchmark can judge.
fn goals(cage: &Table, server: &Table, flush: &Row) -> Vec<Goal> {
    let goal = |text, measured, most| Goal { text, measured, most };
    vec![
        goal(
            "cage: ms, at most 1.5 × bubblewrap + one flush",
            cage.wall("smcp"),
            1.5 * cage.wall("bubblewrap") + flush.wall,
        ),
        goal("cage: ms, under crun without seccomp", cage.wall("smcp"), cage.wall("crun")),
        goal("server: wall against bare", server.wall("smcp") / server.wall("bare"), 1.05),
        goal("server: CPU against bare", server.cpu("smcp") / server.cpu("bare"), 1.05),
        goal("server: ms more than bare", server.wall("smcp") - server.wall("bare"), 15.0),
        goal("server: wall against warm npx", server.wall("smcp") / server.wall("npx"), 0.5),
    ]
}

impl Goal {
    fn is_reached(&self) -> bool {
        self.measured <= self.most
    }
}

impl Table {
    fn of(part: &Part<'_>) -> Table {
        let row = |contender: &Contender<'_>| Row::of(contender.name, &contender.wall, &contender.cpu);
        Table { title: part.title, rows: part.contenders.iter().map(row).collect() }
    }

    fn wall(&self, name: &str) -> f64 {
        self.row(name).map_or(f64::NAN, |row| row.wall)
    }

    fn cpu(&self, name: &str) -> f64 {
        self.row(name).map_or(f64::NAN, |row| row.cpu)
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

impl Row {
    fn of(name: &'static str, wall: &[Duration], cpu: &[Duration]) -> Row {
        let least = wall.iter().min().map_or(f64::NAN, |least| millis(*least));
        Row { name, runs: wall.len(), wall: median(wall), least, cpu: median(cpu) }
    }

    fn to_json(&self, bare: f64, bubblewrap: f64) -> Value {
        json!({
            "runs": self.runs,
            "wall_ms": self.wall,
            "least_ms": self.least,
            "cpu_ms": self.cpu,
            "to_bare": self.wall / bare,
            "to_bubblewrap": self.wall / bubblewrap,
        })
    }
}

fn median(samples: &[Duration]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).map_or(f64::NAN, |middle| millis(*middle))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn machine(world: &World) -> Value {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = file("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let said = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        output.map_or(String::new(), |said| {
            String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().into()
        })
    };
    json!({
        "cpu": model.map_or("unknown", |(_, model)| model),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": file("/proc/sys/kernel/osrelease").trim(),
        "load": file("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
        "uid": rustix::process::getuid().as_raw(),
        "smcp": said(&world.smcp().display().to_string()),
        "bubblewrap": said("bwrap"),
        "crun": said("crun"),
        "npx": said("npx"),
        "server": format!("{SERVER} {}", world.version),
    })
}

impl Display for Summary {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (key, value) in self.machine.as_object().into_iter().flatten() {
            writeln!(out, "{key}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))?;
        }
        for table in &self.parts {
            write!(out, "\n{table}")?;
        }
        writeln!(
            out,
            "\none line of 2 kB flushed beside the audit log: {:.2} ms, least {:.2}\n",
            self.flush.wall, self.flush.least
        )?;
        for goal in &self.goals {
            let verdict = if goal.is_reached() { "reached" } else { "missed" };
            writeln!(out, "{verdict:8} {:48} {:7.2} of {:.2}", goal.text, goal.measured, goal.most)?;
        }
        Ok(())
    }
}

impl Display for Table {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}, ms", self.title)?;
        writeln!(
            out,
            "{:12}{:>6}{:>10}{:>10}{:>10}{:>9}{:>9}",
            "", "runs", "median", "least", "CPU", "/ bare", "/ bwrap"
        )?;
        let (bare, bubblewrap) = (self.wall("bare"), self.wall("bubblewrap"));
        for Row { name, runs, wall, least, cpu } in &self.rows {
            let (to_bare, to_bubblewrap) = (wall / bare, wall / bubblewrap);
            let cpu = if cpu.is_nan() { "-".into() } else { format!("{cpu:.2}") };
            writeln!(out, "{name:12}{runs:6}{wall:10.2}{least:10.2}{cpu:>10}{to_bare:9.2}{to_bubblewrap:9.2}")?;
        }
        Ok(())
    }
}
