//! The whole cage of one run as data: pure, complete, printable. Nothing after it reads configuration.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bundle::{Access, CERTIFICATES, Egress, Grant, Limits, Origin, Secret, Subprocess};
use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::interpreter::HostInterpreter;

/// Everything that the cage needs to know to be built and to start the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Program and arguments. A program without `/` is looked up in `PATH` inside.
    pub command: Vec<String>,
    /// How many words of the command are the package's own, whose paths are the package's; `None` for an image that smcp did
    /// not build.
    pub own_words: Option<usize>,
    /// The interpreter of the host, where the package brings none.
    pub interpreter: Option<PathBuf>,
    /// Where the server starts, absolute, inside.
    pub workdir: PathBuf,
    /// The server's environment. Values never leave by `Serialize`: the cage gets them beside the plan.
    #[serde(skip_deserializing)]
    pub env: Vec<Variable>,
    /// Who the server is.
    pub identity: Identity,
    /// The package's files: its layers as one tree on the host, canonical.
    pub tree: PathBuf,
    /// Files of the root beside the package's, by their path inside.
    pub files: BTreeMap<PathBuf, String>,
    /// Links of the root beside the package's, by their path inside.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// What is mounted on the root, in order.
    pub mounts: Vec<Mount>,
    /// Which programs can be executed.
    pub programs: Programs,
    /// Where the server may connect to beside its own loopback.
    #[serde(default, skip_serializing_if = "Egress::is_empty")]
    pub egress: Egress,
    /// The caps of setrlimit(2), soft and hard alike.
    pub rlimits: Rlimits,
    /// The limits of the run, in force by `rlimits` or watched by the supervisor.
    pub limits: Watched,
}

/// One environment variable.
#[derive(Clone, Debug, Serialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Secret,
}

/// One mount on the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where, absolute, inside.
    pub target: PathBuf,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum What {
    /// A directory of a tmpfs that belongs to the server and is gone after the run.
    Private {
        /// Its cap, bytes. All private places of a run together have no more than the largest of their caps.
        size: u64,
        /// Its permission bits.
        mode: u32,
        /// Whether files in it can be executed.
        exec: Exec,
    },
    /// A file or directory of the host.
    Granted {
        /// Canonical path on the host.
        source: PathBuf,
        /// Read-only or read-write.
        access: Access,
        /// Whether files in it can be executed.
        exec: Exec,
        /// Who provides it.
        from: Provider,
    },
    /// A directory in the grant before it, hidden by an empty tmpfs that nobody can open.
    Denied {
        /// The grant's canonical path on the host.
        grant: PathBuf,
        /// The directory's path below that.
        path: PathBuf,
    },
    /// `/proc` of the PID namespace.
    Proc,
    /// A tmpfs with null, zero, full, random, urandom and tty of the host.
    Devices,
    /// A devpts instance of its own.
    Terminals,
    /// POSIX shared memory, a tmpfs.
    SharedMemory {
        /// Its cap, bytes.
        size: u64,
    },
}

/// Who provides what is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The user, by a flag or an argument.
    User,
    /// smcp: a directory of its own that lasts from run to run.
    State,
    /// The machine: its interpreter.
    Host,
}

/// Which programs the server can execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Programs {
    /// Its own, with what interprets it: the server can start itself again, and nothing foreign.
    Runtime,
    /// These too; absolute paths inside.
    Named(Vec<PathBuf>),
    /// Every one, also what it wrote itself.
    Any,
}

/// Whether files on a mount can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exec {
    /// They can: a program that is granted may lie there.
    Allowed,
    /// They cannot: `noexec`.
    Denied,
}

/// Limits in plain units, for the wire, `--dry-run` and the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watched {
    /// Memory of the cage, bytes.
    pub memory: u64,
    /// CPU rate, thousandths of one CPU.
    pub cpu_millis: u32,
    /// CPU time of the tree, seconds.
    pub cpu_time_seconds: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Open descriptors of one process.
    pub fds: u32,
    /// Wall clock, seconds.
    pub timeout_seconds: u64,
}

/// A limit that ended a run, with its value: `{"name": …, "value": …}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "name", content = "value", rename_all = "kebab-case")]
pub enum Limit {
    /// Memory of the cage, bytes.
    Memory(u64),
    /// Processes and threads.
    Pids(u32),
    /// CPU time of the tree, seconds.
    CpuTime(u64),
    /// Wall clock, seconds.
    Timeout(u64),
    /// A single file, bytes.
    FileSize(u64),
}

impl Limit {
    /// Its name in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Memory(_) => "memory",
            Limit::Pids(_) => "pids",
            Limit::CpuTime(_) => "cpu-time",
            Limit::Timeout(_) => "timeout",
            Limit::FileSize(_) => "file-size",
        }
    }
}

impl Watched {
    /// Wall clock of the run.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

impl From<&Limits> for Watched {
    fn from(limits: &Limits) -> Watched {
        // Whole seconds, rounded up: no limit becomes none.
        let seconds = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
        Watched {
            memory: limits.memory,
            cpu_millis: limits.cpu,
            cpu_time_seconds: seconds(limits.cpu_time),
            pids: limits.pids,
            fds: limits.fds,
            timeout_seconds: seconds(limits.timeout),
        }
    }
}

#[cfg(any(test, not(target_os = "linux")))]
impl Watched {
    /// The limit that is not kept by what a tree uses: bytes, processes or threads, CPU time.
    pub fn exceeded(&self, memory: u64, pids: u64, spent: Duration) -> Option<Limit> {
        if memory > self.memory {
            Some(Limit::Memory(self.memory))
        } else if pids > u64::from(self.pids) {
            Some(Limit::Pids(self.pids))
        } else {
            (spent > Duration::from_secs(self.cpu_time_seconds)).then_some(Limit::CpuTime(self.cpu_time_seconds))
        }
    }
}

/// Caps by setrlimit(2). Where the caller has a lower one, that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimits {
    /// Bytes of a core file. 1 also keeps the kernel from starting a program that takes cores, which 0 does not, core(5).
    pub core: u64,
    /// Bytes of heap and private mappings of one process.
    pub data: u64,
    /// Bytes of one file; none where the run may write files of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsize: Option<u64>,
    /// Open descriptors of one process.
    pub nofile: u64,
    /// Threads of all processes of the cage.
    pub nproc: u64,
    /// Signals that wait and timers. The kernel counts them for the user on the whole machine, so a cage must not use them up.
    pub sigpending: u64,
    /// The best priority that it can give itself, as 20 less the nice value: none that is better than the usual.
    pub nice: u64,
    /// The highest real-time priority that it can give itself.
    pub rtprio: u64,
}

/// The host name inside every cage.
pub const HOSTNAME: &str = "smcp";

impl Plan {
    /// Draws up the cage for a grant over a package's `tree`, with the host's interpreter where the package brings none.
    pub fn new(grant: &Grant, tree: PathBuf, identity: Identity, host: Option<&HostInterpreter>) -> Plan {
        let programs = match &grant.subprocess {
            Subprocess::Denied => Programs::Runtime,
            Subprocess::AllowedPaths(paths) => Programs::Named(paths.clone()),
            Subprocess::AllowedAny => Programs::Any,
        };
        Plan {
            command: command(grant, host),
            own_words: grant.own_words,
            interpreter: host.map(|host| host.program.clone()),
            workdir: grant.workdir.path(&identity.home).to_owned(),
            env: grant.env.iter().map(|(name, value)| Variable { name: name.clone(), value: value.clone() }).collect(),
            tree,
            files: files(grant, &identity),
            links: host.map(|host| host.links.clone()).unwrap_or_default(),
            mounts: mounts(grant, &identity, &programs, host),
            programs,
            egress: grant.egress.clone(),
            rlimits: rlimits(grant),
            limits: Watched::from(&grant.limits),
            identity,
        }
    }

    /// The plan of a cage without package or server, whose layers are measured by `doctor`; `tree` and `grant` are
    /// directories to try the mounts of a package and of a grant with.
    pub fn probe(identity: Identity, tree: &Path, grant: Option<&Path>) -> Plan {
        let mount = |source: &Path| bundle::Mount {
            source: source.into(),
            target: source.into(),
            access: Access::Rw,
            from: Origin::User,
            denied: Vec::new(),
        };
        let nothing = Grant { mounts: grant.map(mount).into_iter().collect(), ..Grant::nothing() };
        Plan::new(&nothing, tree.into(), identity, None)
    }
}

fn command(grant: &Grant, host: Option<&HostInterpreter>) -> Vec<String> {
    let mut command = grant.command.clone();
    if let (Some(host), Some(program)) = (host, command.first_mut())
        && host.is_meant_by(program)
    {
        *program = host.program.display().to_string();
    }
    command
}

fn mounts(grant: &Grant, identity: &Identity, programs: &Programs, host: Option<&HostInterpreter>) -> Vec<Mount> {
    let exec = if *programs == Programs::Any { Exec::Allowed } else { Exec::Denied };
    // Half of the memory limit: full ones must not eat the whole of it.
    let size = grant.limits.memory / 2;
    let mount = |target: &str, what| Mount { target: target.into(), what };
    let mut mounts = vec![
        mount("/proc", What::Proc),
        mount("/dev", What::Devices),
        mount("/dev/pts", What::Terminals),
        mount("/dev/shm", What::SharedMemory { size: size / 2 }),
        mount("/tmp", What::Private { size, mode: 0o1777, exec }),
    ];
    if !grant.mounts.iter().any(|granted| granted.target == identity.home) {
        mounts.push(Mount { target: identity.home.clone(), what: What::Private { size, mode: 0o700, exec } });
    }
    mounts.extend(host.iter().flat_map(|host| &host.mounts).map(|path| Mount {
        target: path.clone(),
        what: What::Granted { source: path.clone(), access: Access::Ro, exec: Exec::Allowed, from: Provider::Host },
    }));
    // A grant's mounts stand in the order in which a parent comes before what lies in it. What is hidden in a grant comes
    // right after it: a later grant may lie above.
    for m in &grant.mounts {
        let (exec, from) = match (m.from, m.access) {
            // What a server may write in one run it must not execute in another, where it asks for less.
            (Origin::State, _) => (exec, Provider::State),
            (Origin::User | Origin::Listed, Access::Rw) => (exec, Provider::User),
            (Origin::User | Origin::Listed, Access::Ro) => (Exec::Allowed, Provider::User),
        };
        let what = What::Granted { source: m.source.clone(), access: m.access, exec, from };
        mounts.push(Mount { target: m.target.clone(), what });
        mounts.extend(m.denied.iter().map(|path| Mount {
            target: m.target.join(path),
            what: What::Denied { grant: m.source.clone(), path: path.clone() },
        }));
    }
    if let Programs::Named(paths) = programs {
        paths.iter().for_each(|path| allow_exec(&mut mounts, path));
    }
    mounts
}

/// Takes `noexec` from the one mount on which a named program lies.
fn allow_exec(mounts: &mut [Mount], path: &Path) {
    let around = mounts.iter_mut().filter(|mount| path.starts_with(&mount.target));
    match around.max_by_key(|mount| mount.target.components().count()).map(|mount| &mut mount.what) {
        Some(What::Private { exec, .. } | What::Granted { exec, .. }) => *exec = Exec::Allowed,
        Some(What::Denied { .. } | What::Proc | What::Devices | What::Terminals | What::SharedMemory { .. }) | None => {
        }
    }
}

/// Bytes that an engine of JavaScript maps for code, writable at once, which RLIMIT_DATA counts, touched or not: V8 512 MiB where the CPU has
/// protection keys, JavaScriptCore 1 GiB. What runs may be one, or start one.
fn mapped_for_code(grant: &Grant) -> u64 {
    const V8: u64 = 512 << 20;
    const JAVASCRIPT_CORE: u64 = 1 << 30;
    if grant.own_words.is_none() || grant.subprocess != Subprocess::Denied {
        return JAVASCRIPT_CORE;
    }
    match grant.command.first().and_then(|program| Path::new(program).file_name()?.to_str()) {
        Some("bun") => JAVASCRIPT_CORE,
        Some("node" | "nodejs" | "deno") => V8,
        _ => 0,
    }
}

fn rlimits(grant: &Grant) -> Rlimits {
    const LEAST_DATA: u64 = 128 << 20;
    // Files of a cage are memory, so that none can hold more than the memory limit. But a sparse one may well be larger:
    // .NET maps 2 GiB of a memfd, databases the most that they may grow to.
    const LEAST_FSIZE: u64 = 4 << 30;
    let limits = &grant.limits;
    // Files of the host are no memory. A cap on one of them would end large downloads and databases, and stop nobody who
    // writes two.
    let in_memory = grant.mounts.iter().all(|mount| mount.access == Access::Ro);
    Rlimits {
        core: 1,
        data: limits.memory.saturating_add(limits.memory / 4).max(LEAST_DATA).saturating_add(mapped_for_code(grant)),
        fsize: in_memory.then_some((limits.memory.saturating_mul(4)).max(LEAST_FSIZE)),
        nofile: limits.fds.into(),
        nproc: limits.pids.into(),
        sigpending: 1024,
        nice: 0,
        rtprio: 0,
    }
}

fn files(grant: &Grant, identity: &Identity) -> BTreeMap<PathBuf, String> {
    let mut files = skeleton_files(identity, &grant.egress);
    files.extend(grant.certificates.iter().map(|certificates| (CERTIFICATES.into(), certificates.pem.clone())));
    files
}

/// Where smcp answers names inside; an address of benchmarks (RFC 2544) that no network has.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

fn resolv_conf(egress: &Egress) -> String {
    match egress.is_empty() {
        true => "# no network is granted\n".into(),
        // An answer comes at once or not at all, unless the host's own resolver is slow.
        false => format!("nameserver {RESOLVER}\noptions timeout:2 attempts:2\n"),
    }
}

/// The names by which containers know the machine that they run on lead to it where a port of it is granted.
fn hosts(egress: &Egress) -> String {
    let machine = if egress.host_ports.is_empty() { "" } else { " host.docker.internal host.containers.internal" };
    format!("127.0.0.1 localhost {HOSTNAME}{machine}\n::1 localhost {HOSTNAME}\n")
}

fn skeleton_files(identity: &Identity, egress: &Egress) -> BTreeMap<PathBuf, String> {
    let Identity { uid, gid, user, home, .. } = identity;
    let home = home.display();
    let root = if *uid == 0 { String::new() } else { "root:x:0:0:root:/root:/usr/sbin/nologin\n".into() };
    let root_group = if *gid == 0 { "" } else { "root:x:0:\n" };
    let file = |path: &str, text: String| (Path::new("/etc").join(path), text);
    BTreeMap::from([
        file(
            "passwd",
            format!("{root}{user}:x:{uid}:{gid}::{home}:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"),
        ),
        file("group", format!("{root_group}{user}:x:{gid}:\nnogroup:x:65534:\n")),
        file("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".into()),
        file("hosts", hosts(egress)),
        file("resolv.conf", resolv_conf(egress)),
        file("hostname", "smcp\n".into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L7, K9: node starts under the limits by default whatever its CPU makes V8 map, and nothing else has more for that.
    #[test]
    fn k9_what_engines_map_for_code_is_none_of_the_memory() {
        let data = |command: &[&str], own_words, subprocess| {
            let command = command.iter().map(|word| (*word).to_owned()).collect();
            let mut grant = Grant { command, own_words, subprocess, ..Grant::nothing() };
            grant.limits.memory = 512 << 20;
            rlimits(&grant).data >> 20
        };
        for (command, own_words, subprocess, most) in [
            (["/usr/local/bin/node", "a.js"], Some(2), Subprocess::Denied, 640 + 512),
            (["/usr/bin/python3", "node"], Some(2), Subprocess::Denied, 640),
            (["bun", "a.js"], Some(2), Subprocess::Denied, 640 + 1024),
            (["/usr/bin/python3", "a.py"], Some(2), Subprocess::AllowedAny, 640 + 1024),
            (["/entrypoint", "a"], None, Subprocess::Denied, 640 + 1024),
        ] {
            assert_eq!(data(&command, own_words, subprocess), most, "{command:?}");
        }
    }
    #[test]
    fn the_limit_that_is_not_kept_is_named() {
        let grant = Grant::nothing();
        let limits = Watched::from(&grant.limits);
        let exceeded = |memory, pids, seconds| {
            limits.exceeded(limits.memory + memory, u64::from(limits.pids) + pids, Duration::from_secs(seconds))
        };
        let all = limits.cpu_time_seconds;
        assert_eq!(exceeded(0, 0, all), None);
        assert_eq!(exceeded(1, 1, all + 1), Some(Limit::Memory(limits.memory)));
        assert_eq!(exceeded(0, 1, all + 1), Some(Limit::Pids(limits.pids)));
        assert_eq!(exceeded(0, 0, all + 1), Some(Limit::CpuTime(all)));
    }
}
