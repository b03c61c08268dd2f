//! Audit logs of many runs, written as smcp does but faster: chained, and with the head beside.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::image::sha256;
use crate::world::World;

/// A log in the making.
pub struct LongLog<'w> {
    world: &'w World,
    to: BufWriter<File>,
    seq: u64,
    prev: Option<String>,
}

impl<'w> LongLog<'w> {
    /// The world's own, which has no entry yet.
    pub fn new(world: &'w World) -> LongLog<'w> {
        let to = BufWriter::new(File::create(world.file("log/audit.log", "")).expect("it is ours"));
        LongLog { world, to, seq: 0, prev: None }
    }

    /// Writes an entry.
    pub fn entry(&mut self, mut fields: Value) {
        self.seq += 1;
        fields["seq"] = json!(self.seq);
        fields["prev"] = json!(self.prev);
        let line = fields.to_string();
        self.prev = Some(sha256(line.as_bytes()));
        writeln!(self.to, "{line}").expect("there is room");
    }

    /// Writes what is left, and the head of the chain.
    pub fn end(mut self) {
        self.to.flush().expect("there is room");
        let log = self.world.text("log/audit.log");
        let name = format!("{}.json", &sha256(log.as_bytes())[..16]);
        let hash = self.prev.map(|hash| format!("sha256:{hash}"));
        ["state/smcp", "state/smcp/audit"].iter().for_each(|name| drop(self.world.directory(name)));
        self.world.file(&format!("state/smcp/audit/{name}"), json!({"seq": self.seq, "hash": hash}).to_string());
    }
}

/// The page that a world's log comes to, after `smcp audit report` with these flags has ended with this code.
#[track_caller]
pub fn report(world: &World, flags: &[&str], code: i32) -> (PathBuf, String) {
    let page = world.path("project/report.html");
    world.smcp(["audit", "report", "--html"]).args([&page]).args(flags).run().expect(code);
    let text = fs::read_to_string(&page).expect("it was written");
    (page, text)
}
