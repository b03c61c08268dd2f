//! What an audit log comes to, read line by line. Its memory is bounded, however long the log is and whatever stands in it: what
//! comes beyond a bound is counted and has no row.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use serde_json::Value;

/// How many packages have rows of their own.
const PACKAGES: usize = 1_000;
/// How many rows of one kind a package has: it chooses its own words, and takes no place of another's.
const ROWS: usize = 100;
/// How many grants of a package are known as such.
const GRANTS: usize = 200;
/// How many days: more than ten years.
const DAYS: usize = 4_000;
/// How many changes are kept, the newest.
const CHANGES: usize = 200;
/// How many runs may be under way at once.
const OPEN: usize = 20_000;
/// Characters of a text of the log.
const LONGEST: usize = 200;

/// What is known of a log, or of the part since a time.
#[derive(Debug, Default)]
pub struct Summary {
    since: Option<Timestamp>,
    /// When the first and the last entry were written.
    pub period: Option<(Timestamp, Timestamp)>,
    /// Runs that began.
    pub runs: u64,
    /// Those that have no end yet.
    pub open: BTreeMap<String, Open>,
    /// Runs without an end that were forgotten, since there were too many.
    pub forgotten: u64,
    /// Ends of runs whose begin is not in what was read.
    pub ends_alone: u64,
    /// Lines that are no entries.
    pub unread: u64,
    /// Runs by [`Outcome`].
    pub outcomes: [u64; 4],
    /// Runs in which some layer was not full.
    pub not_full: u64,
    /// Runs by the day of their begin.
    pub days: Rows<Date, [u64; 4]>,
    /// Runs by the cause of their end.
    pub causes: Rows<String, Tally>,
    /// By name without version.
    pub packages: Rows<String, Package>,
    /// Runs by tier.
    pub tiers: Rows<u64, u64>,
    /// Runs by level of certification; of none, where nothing was looked up.
    pub levels: Rows<Option<u64>, u64>,
    /// Runs by tens of their score.
    pub scores: Rows<Option<u64>, u64>,
    /// What was not enforced in full, by layer and by what was said of it.
    pub layers: Rows<(String, String), Tally>,
    /// Who started smcp.
    pub callers: Rows<String, Tally>,
    /// Machines.
    pub hosts: Rows<String, Tally>,
    /// Grants that a package had not had before, and lists that changed.
    pub changes: VecDeque<Change>,
    /// Those that are not kept.
    pub older_changes: u64,
    /// Calls of tools that have a line.
    pub calls: u64,
}

/// How a run ended, as far as colours go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it was to.
    Well,
    /// Otherwise, or nobody saw it.
    Failed,
    /// By a limit.
    Limit,
    /// It was refused before anything of the package ran.
    Refused,
}

impl Outcome {
    fn of(end: &Value) -> Outcome {
        if end["limit"].is_object() {
            return Outcome::Limit;
        }
        match end["cause"].as_str() {
            Some("client-closed" | "terminated" | "dry-run" | "bundle") => Outcome::Well,
            Some("exited") if end["exit"] == 0 => Outcome::Well,
            Some("denied" | "verification" | "cage" | "unpack" | "configuration") => Outcome::Refused,
            Some("timeout") => Outcome::Limit,
            _ => Outcome::Failed,
        }
    }
}

/// A run that has no end yet.
#[derive(Debug)]
pub struct Open {
    package: String,
    day: Option<Date>,
}

/// How often, and when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// How many runs.
    pub runs: u64,
    /// How many times in them, where that is counted.
    pub times: u64,
    /// The first.
    pub first: Option<Timestamp>,
    /// The last.
    pub last: Option<Timestamp>,
}

impl Tally {
    fn run(&mut self, at: Option<Timestamp>) {
        self.runs += 1;
        self.times += 1;
        self.first = self.first.or(at);
        self.last = at.or(self.last);
    }
}

/// What runs of a package came to.
#[derive(Debug, Default)]
pub struct Package {
    /// All.
    pub runs: Tally,
    /// By [`Outcome`].
    pub outcomes: [u64; 4],
    /// Its level of certification in the newest run that says one.
    pub level: Option<u64>,
    /// Its score.
    pub score: Option<u64>,
    /// Who certified it.
    pub certifier: Option<String>,
    /// Who signed it.
    pub signed: bool,
    /// Its manifests' digests.
    pub digests: Rows<String, ()>,
    /// Host, port and why.
    pub denied: Rows<(String, Option<u64>, String), Tally>,
    /// Limit and value.
    pub limits: Rows<(String, String), Tally>,
    /// Why it was refused.
    pub refusals: Rows<String, Tally>,
    /// Whatever it was granted so far; none before its first grant.
    grants: Option<BTreeSet<String>>,
}

/// Something that is other than before.
#[derive(Debug)]
pub struct Change {
    /// When.
    pub at: Option<Timestamp>,
    /// The run.
    pub run: String,
    /// The package, with its version.
    pub package: String,
    /// What is new.
    pub what: Vec<String>,
    /// How much more.
    pub more: usize,
    /// Which kind.
    pub kind: Kind,
}

/// Kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something is granted that was not before.
    Granted,
    /// A list of the server's is another than was accepted.
    Listed {
        /// Which.
        list: String,
        /// It was kept from the client.
        withheld: bool,
    },
}

/// Rows by a key, up to a number of them.
#[derive(Debug)]
pub struct Rows<K, V> {
    rows: BTreeMap<K, V>,
    most: usize,
    /// How often something came that would have been one more.
    pub beyond: u64,
}

impl<K, V> Default for Rows<K, V> {
    fn default() -> Self {
        Rows { rows: BTreeMap::new(), most: ROWS, beyond: 0 }
    }
}

impl<K: Ord, V: Default> Rows<K, V> {
    fn up_to(most: usize) -> Rows<K, V> {
        Rows { most, ..Rows::default() }
    }

    /// The row of a key, which is made where there is room.
    fn at(&mut self, key: K) -> Option<&mut V> {
        if self.rows.len() >= self.most && !self.rows.contains_key(&key) {
            self.beyond += 1;
            return None;
        }
        Some(self.rows.entry(key).or_default())
    }

    /// All of them, by their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.rows.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
}

impl Summary {
    /// Of entries since a time, or of all.
    pub fn new(since: Option<Timestamp>) -> Summary {
        Summary { since, days: Rows::up_to(DAYS), packages: Rows::up_to(PACKAGES), ..Summary::default() }
    }

    /// Takes the next line.
    pub fn line(&mut self, line: &[u8]) {
        let entry: Option<Value> = serde_json::from_slice(line).ok();
        let Some((entry, run, event)) =
            entry.as_ref().and_then(|e| Some((e, e["run"].as_str()?, e["event"].as_str()?)))
        else {
            self.unread += 1;
            return;
        };
        let at = entry["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        if self.since.is_some_and(|since| at.is_none_or(|at| at < since)) {
            return;
        }
        if let Some(at) = at {
            let (first, last) = self.period.unwrap_or((at, at));
            self.period = Some((first.min(at), last.max(at)));
        }
        match event {
            "begin" => self.begin(entry, run, at),
            "denied" => self.denied(entry, run, at),
            "changed" => self.changed(entry, run, at),
            "call" => self.calls += 1,
            "end" => self.end(entry, run, at),
            _ => self.unread += 1,
        }
    }

    fn begin(&mut self, entry: &Value, run: &str, at: Option<Timestamp>) {
        self.runs += 1;
        self.outcomes[Outcome::Failed as usize] += 1;
        let name = ["name", "reference"].iter().find_map(|key| entry[*key].as_str()).unwrap_or("?");
        let family = clipped(family(name));
        let day = at.map(|at| Offset::UTC.to_datetime(at).date());
        if let Some(day) = day.and_then(|day| self.days.at(day)) {
            // Until its end says how it went; without one nobody knows.
            day[Outcome::Failed as usize] += 1;
        }
        let level = entry["level"].as_u64();
        let score = entry["score"].as_u64();
        self.levels.at(level).into_iter().for_each(|runs| *runs += 1);
        self.scores.at(score.map(|score| score.min(99) / 10)).into_iter().for_each(|runs| *runs += 1);
        self.tiers.at(entry["tier"].as_u64().unwrap_or(u64::MAX)).into_iter().for_each(|runs| *runs += 1);
        let tally = |rows: &mut Rows<String, Tally>, key: Option<&str>| {
            rows.at(clipped(key.unwrap_or("unknown"))).into_iter().for_each(|tally| tally.run(at));
        };
        tally(&mut self.callers, entry["caller"]["program"].as_str());
        tally(&mut self.hosts, entry["host"].as_str());
        let layers = entry["layers"].as_object().into_iter().flatten();
        let mut lacks = layers
            .filter_map(|(layer, status)| Some((layer, status.as_str()?)))
            .filter(|(_, is)| *is != "full")
            .peekable();
        self.not_full += u64::from(lacks.peek().is_some());
        for (layer, status) in lacks {
            self.layers.at((clipped(layer), clipped(status))).into_iter().for_each(|tally| tally.run(at));
        }
        if let Some(package) = self.packages.at(family.clone()) {
            package.runs.run(at);
            package.outcomes[Outcome::Failed as usize] += 1;
            if entry.get("level").is_some() {
                (package.level, package.score) = (level, score);
                package.certifier = entry["certifier"].as_str().map(clipped);
                package.signed = entry["signers"].as_array().is_some_and(|signers| !signers.is_empty());
            }
            if let Some(digest) = entry["digest"].as_str() {
                package.digests.at(clipped(digest));
            }
            for reason in entry["policy"]["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                package.refusals.at(clipped(reason)).into_iter().for_each(|tally| tally.run(at));
            }
            // A build is granted a new directory each time, and is no package's run.
            if entry["grants"].is_object() && !family.starts_with(BUILD) {
                let (what, more) = package.new_grants(&entry["grants"]);
                if !what.is_empty() {
                    let package = clipped(name);
                    self.change(Change { at, run: clipped(run), package, what, more, kind: Kind::Granted });
                }
            }
        }
        self.open.insert(clipped(run), Open { package: family, day });
        if self.open.len() > OPEN {
            // Ids are times: the first is the oldest.
            self.open.pop_first();
            self.forgotten += 1;
        }
    }

    fn denied(&mut self, entry: &Value, run: &str, at: Option<Timestamp>) {
        let Some(open) = self.open.get(&clipped(run)) else { return };
        if let Some(package) = self.packages.rows.get_mut(&open.package) {
            package.denied.at(refused(entry)).into_iter().for_each(|tally| tally.run(at));
        }
    }

    fn changed(&mut self, entry: &Value, run: &str, at: Option<Timestamp>) {
        let Some(open) = self.open.get(&clipped(run)) else { return };
        let lines: Vec<&str> = entry["changes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let kind =
            Kind::Listed { list: clipped(entry["kind"].as_str().unwrap_or("?")), withheld: entry["withheld"] == true };
        let what = lines.iter().take(SHOWN).map(|line| clipped(line)).collect();
        let more = lines.len().saturating_sub(SHOWN);
        self.change(Change { at, run: clipped(run), package: open.package.clone(), what, more, kind });
    }

    fn end(&mut self, entry: &Value, run: &str, at: Option<Timestamp>) {
        let cause = clipped(entry["cause"].as_str().unwrap_or("?"));
        let Some(Open { package, day }) = self.open.remove(&clipped(run)) else {
            self.ends_alone += 1;
            return;
        };
        self.causes.at(cause).into_iter().for_each(|tally| tally.run(at));
        let outcome = Outcome::of(entry) as usize;
        let settle = |outcomes: &mut [u64; 4]| {
            outcomes[Outcome::Failed as usize] -= 1;
            outcomes[outcome] += 1;
        };
        settle(&mut self.outcomes);
        // A day without a row had none at the begin either: rows are not given up.
        if let Some(day) = day.and_then(|day| self.days.rows.get_mut(&day)) {
            settle(day);
        }
        let Some(package) = self.packages.rows.get_mut(&package) else { return };
        settle(&mut package.outcomes);
        if let Some(name) = entry["limit"]["name"].as_str() {
            let key = (clipped(name), clipped(&entry["limit"]["value"].to_string()));
            package.limits.at(key).into_iter().for_each(|tally| tally.run(at));
        }
        for one in entry["egress"]["refused"].as_array().into_iter().flatten() {
            // The first time has a line of its own.
            if let Some(tally) = package.denied.rows.get_mut(&refused(one)) {
                tally.times += one["count"].as_u64().unwrap_or(1).saturating_sub(1);
            }
        }
        package.denied.beyond += entry["egress"]["refused_more"].as_u64().unwrap_or(0);
        if outcome == Outcome::Refused as usize
            && entry["cause"] != "denied"
            && let Some(error) = entry["error"].as_str()
        {
            package.refusals.at(clipped(error)).into_iter().for_each(|tally| tally.run(at));
        }
    }

    fn change(&mut self, change: Change) {
        self.changes.push_back(change);
        if self.changes.len() > CHANGES {
            self.changes.pop_front();
            self.older_changes += 1;
        }
    }
}

/// How many new things of one change are named.
const SHOWN: usize = 8;

impl Package {
    /// What of these it was not granted before, and how many more; nothing at first.
    fn new_grants(&mut self, grants: &Value) -> (Vec<String>, usize) {
        let words = granted(grants);
        let Some(known) = &mut self.grants else {
            self.grants = Some(words.into_iter().take(GRANTS).collect());
            return (Vec::new(), 0);
        };
        let new: Vec<String> = words.into_iter().filter(|word| !known.contains(word)).collect();
        let room = GRANTS.saturating_sub(known.len());
        known.extend(new.iter().take(room).cloned());
        let more = new.len().saturating_sub(SHOWN);
        (new.into_iter().take(SHOWN).collect(), more)
    }
}

/// A grant as words, one for each thing that it opens.
fn granted(grants: &Value) -> BTreeSet<String> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let mut words = BTreeSet::new();
    for mount in grants["mounts"].as_array().into_iter().flatten() {
        let access = if mount["access"] == "rw" { "write" } else { "read" };
        words.insert(clipped(&format!("{access} {}", mount["source"].as_str().unwrap_or("?"))));
    }
    words.extend(texts(&grants["env"]).iter().map(|name| clipped(&format!("variable {name}"))));
    match &grants["subprocess"] {
        Value::Bool(true) => drop(words.insert("every program".into())),
        paths => words.extend(texts(paths).iter().map(|path| clipped(&format!("program {path}")))),
    }
    let network = &grants["network"];
    words.extend(texts(&network["outbound"]).iter().map(|host| clipped(&format!("network {host}"))));
    for port in network["hostPorts"].as_array().into_iter().flatten() {
        words.insert(clipped(&format!("port {port} of this machine")));
    }
    if network["any"] == true {
        words.insert("every public address".into());
    }
    words
}

fn refused(entry: &Value) -> (String, Option<u64>, String) {
    let text = |key: &str| clipped(entry[key].as_str().unwrap_or("?"));
    (text("host"), entry["port"].as_u64(), text("why"))
}

/// What the reference of a step of a build begins with; no reference has a space.
const BUILD: &str = "build: ";

/// A name without its version, tag or digest.
fn family(name: &str) -> &str {
    if name.starts_with(BUILD) {
        return name;
    }
    let name = name.split_once("@sha256:").map_or(name, |(name, _)| name);
    let scheme = ["npm:", "pypi:", "mcp:", "mcpb:", "oci-layout:"].iter().find(|scheme| name.starts_with(**scheme));
    let from = scheme.map_or(0, |scheme| scheme.len());
    let from = name[from..].rfind('/').map_or(from, |slash| from + slash + 1);
    // The `@` of a scope is none of a version.
    let first = name[from..].chars().next().map_or(0, char::len_utf8);
    match name[from + first..].find(['@', ':', '=']) {
        Some(at) => &name[..from + first + at],
        None => name,
    }
}

/// So much of a text that no entry takes the memory of all.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_family_is_the_name_without_its_version() {
        let cases = [
            ("npm:@modelcontextprotocol/server-memory@2026.8.31", "npm:@modelcontextprotocol/server-memory"),
            ("npm:@scope", "npm:@scope"),
            ("npm:left-pad@1.0.0", "npm:left-pad"),
            ("pypi:mcp-server-time==1.2", "pypi:mcp-server-time"),
            ("localhost:5000/mcp/time:1", "localhost:5000/mcp/time"),
            ("localhost:5000/mcp/time", "localhost:5000/mcp/time"),
            ("ghcr.io/a/b@sha256:00", "ghcr.io/a/b"),
            ("oci-layout:/home/me/mcp:files", "oci-layout:/home/me/mcp"),
            ("mcp:io.github.acme/hello@1", "mcp:io.github.acme/hello"),
            ("build: npm", "build: npm"),
            ("", ""),
            ("é", "é"),
            ("/", "/"),
        ];
        for (name, expected) in cases {
            assert_eq!(family(name), expected, "{name}");
        }
    }

    fn begin(run: u32, grants: &Value) -> String {
        json!({"event": "begin", "run": format!("{run:026}"), "time": "2026-11-30T12:00:00Z", "reference": "npm:x@1",
            "level": 1, "score": 85, "signers": [], "tier": 3, "layers": {"cgroup": "full", "landlock": "absent: no"}, "grants": grants})
        .to_string()
    }

    fn end(run: u32, more: &Value) -> String {
        let mut entry = json!({"event": "end", "run": format!("{run:026}"), "time": "2026-11-30T12:00:01Z", "exit": 0, "cause": "exited"});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry.to_string()
    }

    fn summary(lines: &[String]) -> Summary {
        let mut summary = Summary::new(None);
        lines.iter().for_each(|line| summary.line(line.as_bytes()));
        summary
    }

    #[test]
    fn what_a_package_was_not_granted_before_is_a_change() {
        let grants = |mounts: &[&str], env: &[&str]| {
            let mounts: Vec<_> = mounts.iter().map(|path| json!({"source": path, "access": "rw"})).collect();
            json!({"mounts": mounts, "env": env, "subprocess": false, "network": {}})
        };
        let found = summary(&[
            begin(1, &grants(&["/a"], &[])),
            begin(2, &grants(&["/a", "/b"], &["KEY"])),
            // Neither what is gone nor what comes back is one.
            begin(3, &grants(&["/a"], &[])),
            begin(4, &grants(&["/b"], &["KEY"])),
            begin(
                5,
                &json!({"mounts": [], "subprocess": true, "network": {"any": true, "outbound": ["a.test:443"], "hostPorts": [1]}}),
            ),
        ]);
        let what: Vec<_> = found.changes.iter().map(|change| change.what.join(", ")).collect();
        assert_eq!(
            what,
            [
                "variable KEY, write /b",
                "every program, every public address, network a.test:443, port 1 of this machine"
            ]
        );
    }

    #[test]
    fn ends_say_how_runs_went() {
        let found = summary(&[
            begin(1, &Value::Null),
            begin(2, &Value::Null),
            begin(3, &Value::Null),
            begin(4, &Value::Null),
            begin(5, &Value::Null),
            json!({"event": "denied", "run": format!("{:026}", 1), "host": "a.test", "port": 443, "why": "name-not-granted", "count": 1}).to_string(),
            end(1, &json!({"egress": {"refused": [{"host": "a.test", "port": 443, "why": "name-not-granted", "count": 7}], "refused_more": 2}})),
            end(2, &json!({"exit": 137, "cause": "memory", "limit": {"name": "memory", "value": 1024}})),
            end(3, &json!({"exit": 121, "cause": "denied", "error": "no"})),
            end(4, &json!({"exit": 1})),
            end(9, &json!({})),
            "torn".into(),
        ]);
        let package = &found.packages.rows["npm:x"];
        assert_eq!(package.outcomes, [1, 2, 1, 1], "the fifth has no end");
        assert_eq!(found.days.rows.values().next(), Some(&[1, 2, 1, 1]));
        assert_eq!((found.runs, found.open.len(), found.ends_alone, found.unread), (5, 1, 1, 1));
        let denied = package.denied.iter().next().expect("one is");
        assert_eq!((denied.1.runs, denied.1.times, package.denied.beyond), (1, 7, 2));
        assert_eq!(package.limits.iter().next().map(|(key, _)| key.1.as_str()), Some("1024"));
        assert_eq!(found.layers.iter().next().map(|(key, tally)| (key.0.as_str(), tally.runs)), Some(("landlock", 5)));
    }

    /// Whoever chooses names cannot fill the memory, nor take another's rows.
    #[test]
    fn rows_are_bounded_for_each_package() {
        let mut summary = Summary::new(None);
        summary.line(begin(1, &Value::Null).as_bytes());
        for host in 0..500 {
            let line = json!({"event": "denied", "run": format!("{:026}", 1), "host": format!("{host}.test{}", "x".repeat(5000)), "why": "w"});
            summary.line(line.to_string().as_bytes());
        }
        let package = &summary.packages.rows["npm:x"];
        assert_eq!((package.denied.len(), package.denied.beyond), (ROWS, 400));
        assert!(package.denied.iter().all(|(key, _)| key.0.chars().count() == LONGEST + 1));
    }

    #[test]
    fn a_time_leaves_older_entries_out() {
        let since = "2026-11-30T12:00:01Z".parse().ok();
        let mut summary = Summary::new(since);
        [begin(1, &Value::Null), end(1, &json!({}))].iter().for_each(|line| summary.line(line.as_bytes()));
        assert_eq!((summary.runs, summary.ends_alone), (0, 1));
    }
}
