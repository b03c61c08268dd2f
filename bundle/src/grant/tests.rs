use super::*;
use crate::config::ImageConfig;
use crate::manifest::Manifest;
use crate::outbound::Outbound;
use crate::package::PackageOrigin;
use crate::policy::{Source, Sourced};
use distribution::Digest;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A caller in a directory of its own, `DIR/cwd`, with a package and flags.
pub(super) struct World {
    dir: TempDir,
    pub(super) package: Package,
    pub(super) request: Request,
    pub(super) max: Limits,
    pub(super) policy: Policy,
    pub(super) judgement: Judgement,
    caller: CallerEnv,
}

impl World {
    /// With the least manifest and `more` members.
    pub(super) fn new(more: Value) -> World {
        let mut manifest = json!({"schemaVersion": 1, "name": "a/b", "version": "1", "entrypoint": {"args": ["srv"]}});
        manifest.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("cwd")).unwrap();
        let caller = CallerEnv {
            vars: BTreeMap::new(),
            cwd: root.join("cwd"),
            user: "ann".into(),
            home: "/home/ann".into(),
            states: root.join("states"),
            family: "registry.example/a/b".into(),
            protected: Vec::new(),
            program: None,
        };
        let package = Package {
            manifest: Manifest::from_value(&manifest).unwrap(),
            origin: PackageOrigin::Smcp,
            config: ImageConfig::default(),
            digest: Digest::of(""),
            manifest_digest: Digest::of(""),
            layers: Vec::new(),
        };
        let (request, max, policy) = Default::default();
        World { dir, package, request, max, policy, judgement: nothing_against(), caller }
    }

    /// The path of a new directory below the world's.
    pub(super) fn make(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn var(mut self, name: &str, value: &str) -> World {
        self.caller.vars.insert(name.into(), value.into());
        self
    }

    fn env(mut self, flag: &str) -> World {
        self.request.env.push(flag.parse().unwrap());
        self
    }

    pub(super) fn mount(&mut self, flag: impl AsRef<Path>) -> &mut World {
        self.request.mounts.push(flag.as_ref().to_str().unwrap().parse().unwrap());
        self
    }

    fn args(&mut self, args: &[&str]) -> &mut World {
        self.request.args = args.iter().map(|arg| arg.to_string()).collect();
        self
    }

    pub(super) fn judge(&self) -> Result<Grant, Denied> {
        let bounds = Bounds { max: &self.max, policy: &self.policy, judgement: &self.judgement };
        judge(&self.package, &self.request, &bounds, &self.caller)
    }

    fn grant(&self) -> Grant {
        self.judge().unwrap_or_else(|denied| panic!("{denied}"))
    }

    fn denied(&self) -> Denied {
        self.judge().expect_err("must be denied")
    }

    /// The value of a variable inside.
    fn inside(&self, name: &str) -> Option<String> {
        let env = self.grant().env;
        env.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.expose().to_string())
    }
}

fn nothing_against() -> Judgement {
    Judgement {
        standing: Default::default(),
        against: Vec::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
        certified_otherwise: false,
    }
}

fn mount(source: impl Into<PathBuf>, target: impl Into<PathBuf>, access: Access) -> Mount {
    Mount { source: source.into(), target: target.into(), access, from: Origin::User, denied: Vec::new() }
}

/// A manifest that takes a directory as its first argument.
fn takes_directory(access: &str, required: bool) -> Value {
    json!({
        "args": [{"name": "root", "type": "path", "mount": "ws", "required": required}],
        "permissions": {"filesystem": [{"id": "ws", "access": access, "target": "/work", "from": "user"}]}
    })
}

#[test]
fn nothing_asked_and_nothing_given_is_nothing_granted() {
    let grant = World::new(json!({})).grant();
    assert_eq!(grant.command, ["srv"]);
    assert_eq!(grant.workdir, Workdir::Home);
    assert_eq!(grant.workdir.path(Path::new("/home/ann")), Path::new("/home/ann"));
    assert_eq!(grant.mounts, []);
    assert_eq!(grant.subprocess, Subprocess::Denied);
    assert_eq!(grant.limits, Limits::default());
    assert_eq!(grant.withheld, []);
    let names: Vec<_> = grant.env.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["HOME", "LANG", "LOGNAME", "PATH", "USER"]);
}

#[test]
fn e1_what_the_caller_happens_to_have_stays_outside() {
    let world = World::new(json!({"env": [{"name": "AWS_SECRET_ACCESS_KEY"}]}))
        .var("AWS_SECRET_ACCESS_KEY", "hunter2")
        .var("LD_PRELOAD", "/tmp/evil.so")
        .var("LANG", "de_DE.UTF-8")
        .var("PATH", "/outside")
        .var("HOME", "/outside")
        .var("TERM", "xterm")
        .var("TZ", "Europe/Berlin");
    let env = world.grant().env;
    let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(
        env,
        [
            ("HOME", "/home/ann"),
            ("LANG", "C.UTF-8"),
            ("LOGNAME", "ann"),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("TERM", "xterm"),
            ("TZ", "Europe/Berlin"),
            ("USER", "ann"),
        ]
    );
}

#[test]
fn e2_missing_required_variables_are_refused_by_name_all_at_once() {
    let manifest = json!({"env": [
        {"name": "A", "required": true}, {"name": "B", "required": true, "secret": true},
        {"name": "C", "required": true, "default": "c"}, {"name": "D"}
    ]});
    let denied = World::new(manifest.clone()).var("B", "hunter2").denied();
    assert!(denied.is_usage());
    assert_eq!(denied.to_string(), "the required variable A is missing; the required variable B is missing");
    assert_eq!(denied.reasons[0].hint.as_deref(), Some("--env A=VALUE, or a line of --env-file"));
    assert_eq!(denied.reasons[1].hint.as_deref(), Some("--env B passes the caller's value"));
    World::new(manifest).env("A=").env("B=x").grant();
}

/// Who changes `npx` for `smcp run` has the variable where npx had it from.
#[test]
fn e2_a_declared_variable_that_is_here_and_not_passed_is_said() {
    let manifest =
        json!({"env": [{"name": "KEY", "secret": true}, {"name": "MODE"}, {"name": "LEVEL", "default": "1"}]});
    let world = World::new(manifest).var("KEY", "hunter2").var("MODE", "x").var("LEVEL", "2").var("OTHER", "y");
    let told = |name: &str, flag: &str| {
        format!("{name} is set here, and the server does not get it: {flag} {name} passes it on")
    };
    assert_eq!(world.grant().notes, [told("KEY", "--secret"), told("MODE", "--env")]);
    assert_eq!(world.env("KEY").env("MODE=").grant().notes, Vec::<String>::new());
}

#[test]
fn e4_a_bare_name_takes_the_callers_value_as_it_is() {
    let value = " = \"q\" 'r' $HOME\n  two ";
    let world = World::new(json!({})).var("TOKEN", value).env("TOKEN").env("EMPTY=").env("X=1").env("X=2");
    assert_eq!(world.inside("TOKEN").as_deref(), Some(value));
    assert_eq!(world.inside("EMPTY").as_deref(), Some(""));
    assert_eq!(world.inside("X").as_deref(), Some("2"));

    let denied = World::new(json!({})).env("TOKEN").denied();
    assert!(denied.is_usage());
    assert_eq!(denied.to_string(), "--env TOKEN: the caller has no such variable");
}

#[test]
fn e3_a_judgement_prints_no_value() {
    let world = World::new(json!({"env": [{"name": "A", "required": true}]})).var("A", "hunter2").env("K=hunter2");
    assert!(!format!("{:?} {:?}", world.request, world.denied()).contains("hunter2"));
    let grant = world.env("A").grant();
    assert!(!format!("{grant:?}").contains("hunter2"));
}

#[test]
fn later_sources_of_variables_win() {
    let mut world =
        World::new(json!({"env": [{"name": "B", "default": "manifest"}, {"name": "C", "default": "manifest"}]}));
    world.package.config.config.env =
        ["A=image", "B=image", "C=image", "PATH=/image", "HOME=/root", "broken", "=x", "D=a=b"].map(Into::into).into();
    let world = world.env("C=flag").env("USER=flag");
    let all = ["A", "B", "C", "D", "PATH", "HOME", "USER"].map(|name| world.inside(name).unwrap());
    assert_eq!(all, ["image", "manifest", "flag", "a=b", "/image", "/home/ann", "flag"]);
}

#[test]
fn e10_a_mount_is_at_the_same_path_inside() {
    let mut world = World::new(json!({}));
    let (a, b) = (world.make("a"), world.make("b"));
    let file = world.path("f");
    fs::write(&file, "").unwrap();
    world.mount(&a).mount(format!("{}:rw", b.display())).mount(format!("{}:/else/where", file.display()));
    assert_eq!(
        world.grant().mounts,
        [mount(&file, "/else/where", Access::Ro), mount(&a, &a, Access::Ro), mount(&b, &b, Access::Rw)]
    );
}

#[test]
fn e11_symlinks_relative_paths_and_closed_parents_work() {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new(json!({}));
    let real = world.make("real/sub");
    symlink(world.path("real"), world.path("link")).unwrap();
    let closed = world.make("closed/open");
    fs::set_permissions(world.path("closed"), fs::Permissions::from_mode(0o311)).unwrap();
    world.mount(world.path("link/./sub/")).mount("../real").mount(&closed);
    world.request.cwd = Some(".".into());
    let grant = world.grant();
    fs::set_permissions(world.path("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(grant.workdir, Workdir::Granted(world.path("cwd")));
    assert_eq!(
        grant.mounts,
        [
            mount(&closed, &closed, Access::Ro),
            mount(world.path("cwd"), world.path("cwd"), Access::Rw),
            mount(&real, world.path("link/sub"), Access::Ro),
            mount(world.path("real"), world.path("real"), Access::Ro),
        ]
    );
}

#[test]
fn the_wider_access_to_the_same_place_counts_and_two_sources_of_one_place_do_not_go() {
    let mut world = World::new(json!({}));
    let (a, b) = (world.make("a"), world.make("b"));
    world.mount(format!("{}:rw", a.display())).mount(&a);
    assert_eq!(world.grant().mounts, [mount(&a, &a, Access::Rw)]);
    world.mount(format!("{}:{}", b.display(), a.display()));
    assert!(world.denied().is_usage());
}

#[test]
fn smcps_own_program_is_never_granted_to_be_written() {
    let mut world = World::new(json!({}));
    let directory = world.make("home/.local/bin");
    world.caller.program = Some(directory.join("smcp"));
    std::fs::write(directory.join("smcp"), "").unwrap();
    for path in [directory.join("smcp"), directory.clone(), world.path("home/.local")] {
        world.request.mounts.clear();
        world.mount(format!("{}:rw", path.display()));
        assert!(world.denied().to_string().contains("smcp itself"), "{}", path.display());
        world.request.mounts.clear();
        world.mount(&path).grant();
    }
}

#[test]
fn e15_the_root_the_kernel_and_smcp_itself_are_never_granted() {
    let mut world = World::new(json!({}));
    let store = world.make("home/.cache/smcp");
    world.make("home/.cache/smcp/blobs");
    symlink(&store, world.path("innocent")).unwrap();
    // The audit log is not there yet.
    world.caller.protected = vec![world.path("innocent"), world.path("home/.smcp/audit.log")];
    let refused = [
        "/".into(),
        "/proc".into(),
        "/sys/kernel".into(),
        "/dev".into(),
        store.clone(),
        store.join("blobs"),
        world.path("innocent"),
        world.path("home"),
        world.path("home/.cache"),
        world.path("cwd/../home"),
    ];
    for path in refused {
        world.request.mounts.clear();
        world.mount(&path);
        let denied = world.denied();
        assert!(!denied.is_usage(), "{}: {denied}", path.display());
        world.request.mounts.clear();
        world.request.cwd = Some(path.clone());
        world.denied();
        world.request.cwd = None;
    }
    let targets = ["/", "/proc/self", "/dev/shm"];
    for target in targets {
        world.request.mounts = vec![format!(".:{target}").parse().unwrap()];
        assert!(!world.denied().is_usage(), "{target}");
    }
    world.request.mounts.clear();
    let neighbour = world.make("home/.cache/smcp-other");
    world.mount(neighbour);
    world.grant();
}

#[test]
fn a_missing_source_is_the_users_to_put_right() {
    let mut world = World::new(json!({}));
    world.mount("missing");
    world.request.cwd = Some(world.path("gone"));
    let denied = world.denied();
    assert!(denied.is_usage());
    assert_eq!(denied.reasons.len(), 2);
    assert!(denied.to_string().starts_with("--mount missing: No such file or directory"), "{denied}");

    let mut world = World::new(json!({}));
    fs::write(world.path("f"), "").unwrap();
    world.request.cwd = Some(world.path("f"));
    assert!(world.denied().to_string().ends_with("is not a directory"));
}

#[test]
fn a_path_argument_is_granted_where_it_is() {
    let mut world = World::new(takes_directory("rw", true));
    let dir = world.make("proj");
    world.args(&["../proj/.", "--verbose"]);
    let grant = world.grant();
    assert_eq!(grant.command, ["srv", dir.to_str().unwrap(), "--verbose"]);
    assert_eq!(grant.mounts, [mount(&dir, &dir, Access::Rw)]);
    assert_eq!(grant.withheld, []);
}

/// What follows a flag, what is repeated, and a file whose directory is what is needed.
#[test]
fn path_arguments_are_granted_wherever_they_stand() {
    let asked = |id: &str| json!({"id": id, "access": "rw", "target": format!("/{id}"), "from": "user"});
    let world = || {
        World::new(json!({
            "args": [
                {"name": "repository", "type": "path", "mount": "repository", "flag": "--repository", "required": true},
                {"name": "database", "type": "path", "mount": "databases", "flag": "--db", "holder": true},
                {"name": "directory", "type": "path", "mount": "directories", "repeated": true},
            ],
            "permissions": {"filesystem": [asked("repository"), asked("databases"), asked("directories")]},
        }))
    };
    let mut given = world();
    let [repository, data, one, two] = ["repository", "data", "one", "two"].map(|name| given.make(name));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (new, behind) = (text(&data.join("new.db")), format!("--db={}", text(&data.join("old.db"))));
    let given_words = [
        text(&one),
        "--verbose".into(),
        "--repository".into(),
        text(&repository),
        "--db".into(),
        new,
        behind,
        text(&two),
    ];
    let words: Vec<&str> = given_words.iter().map(String::as_str).collect();
    let grant = given.args(&words).grant();
    assert_eq!(grant.command[1..], words);
    let mut granted = [&repository, &data, &one, &two].map(|path| mount(path, path, Access::Rw));
    granted.sort_by(|a, b| a.target.cmp(&b.target));
    assert_eq!(grant.mounts, granted);
    let missing = world().args(&[text(&one).as_str()]).denied();
    assert!(missing.to_string().contains("`repository` is missing"), "{missing}");
    // A flag without its value is the server's to refuse.
    assert!(world().args(&["--repository"]).denied().to_string().contains("`repository` is missing"));
}

#[test]
fn a_path_argument_inside_a_mount_is_not_granted_again() {
    let mut world = World::new(takes_directory("rw", true));
    let dir = world.make("proj");
    world.make("proj/sub");
    world.mount(&dir).args(&[dir.join("sub").to_str().unwrap()]);
    let grant = world.grant();
    assert_eq!(grant.mounts, [mount(&dir, &dir, Access::Ro)]);
    assert_eq!(grant.withheld[0].why, "it is granted read-only");

    let mut world = World::new(takes_directory("rw", true));
    let dir = world.make("proj");
    world.mount(format!("{}:/work:rw", dir.display())).args(&["/work/sub"]);
    let grant = world.grant();
    assert_eq!(grant.command, ["srv", "/work/sub"]);
    assert_eq!(grant.mounts, [mount(&dir, "/work", Access::Rw)]);
    assert_eq!(grant.withheld, []);
}

#[test]
fn a_path_argument_does_not_leave_a_mount_by_dots() {
    let mut world = World::new(takes_directory("ro", true));
    let dir = world.make("proj");
    let other = world.make("other");
    world.mount(&dir).args(&[dir.join("../other").to_str().unwrap()]);
    let grant = world.grant();
    assert_eq!(grant.command[1], other.to_str().unwrap());
    assert_eq!(grant.mounts, [mount(&other, &other, Access::Ro), mount(&dir, &dir, Access::Ro)]);
}

#[test]
fn missing_arguments_and_paths_are_named() {
    let denied = World::new(takes_directory("rw", true)).denied();
    assert!(denied.is_usage());
    assert_eq!(denied.to_string(), "the required argument `root` is missing");
    assert!(denied.reasons[0].hint.as_ref().unwrap().contains("--mount DIRECTORY:/work:rw"));

    let mut world = World::new(takes_directory("rw", true));
    world.args(&["missing"]);
    assert!(world.denied().to_string().starts_with("argument `root` missing: "));

    let grant = World::new(takes_directory("rw", false)).grant();
    assert_eq!(grant.withheld[0].what, "filesystem `ws` (rw /work)");
    assert_eq!(grant.withheld[0].hint.as_deref(), Some("--mount DIRECTORY:/work:rw"));
}

#[test]
fn a_mount_at_its_target_answers_a_request() {
    let mut world = World::new(takes_directory("ro", false));
    let dir = world.make("proj");
    world.mount(format!("{}:/work", dir.display()));
    assert_eq!(world.grant().withheld, []);
}

/// A manifest that asks for destinations.
fn asks_for(outbound: Value) -> World {
    World::new(json!({"permissions": {"network": {"outbound": outbound}}}))
}

fn texts(outbound: &[Outbound]) -> Vec<String> {
    outbound.iter().map(Outbound::to_string).collect()
}

fn withheld(grant: &Grant) -> Vec<(&str, &str, Option<&str>)> {
    grant.withheld.iter().map(|w| (w.what.as_str(), w.why.as_str(), w.hint.as_deref())).collect()
}

impl World {
    fn allow_net(&mut self, text: &str) -> &mut World {
        self.request.network.outbound.push(text.parse().unwrap());
        self
    }

    /// One more policy; `None` is a policy without a list.
    fn ceiling(&mut self, allow: Option<&[&str]>, deny: &[&str]) -> &mut World {
        let source = Source::Variable("P".into());
        let allow = allow.map(|list| list.iter().map(|text| text.parse().unwrap()).collect());
        let allow = allow.map(|value| Sourced { value, source: source.clone() });
        let deny = deny.iter().map(|text| Sourced { value: text.parse().unwrap(), source: source.clone() });
        let network = std::mem::take(&mut self.policy.ceilings.network);
        self.policy.ceilings.network = network.and(NetworkCeiling::new(allow, deny.collect()));
        self
    }
}

#[test]
fn a_network_is_granted_as_asked_and_by_flags() {
    let mut world =
        asks_for(json!([{"host": "api.acme.example", "ports": [8443, 443]}, "*.acme.example", "192.0.2.1:25"]));
    let grant = world.grant();
    assert_eq!(texts(&grant.egress.outbound), ["api.acme.example:443,8443", "*.acme.example:443", "192.0.2.1:25"]);
    assert_eq!(grant.withheld, []);
    assert!(!grant.egress.any && grant.egress.host_ports.is_empty());
    world.allow_net("api.acme.example:80,443").allow_net("10.0.0.0/8:5432");
    world.request.network.host_ports = vec![6379, 5432, 6379];
    world.request.network.any = true;
    let egress = world.grant().egress;
    let want = ["api.acme.example:80,443,8443", "*.acme.example:443", "192.0.2.1:25", "10.0.0.0/8:5432"];
    assert_eq!(texts(&egress.outbound), want);
    assert_eq!((egress.host_ports, egress.any), (vec![5432, 6379], true));
    assert!(World::new(json!({})).grant().egress.is_empty());
}

/// What a publisher writes must not open the machine's own networks.
#[test]
fn n4_addresses_that_are_not_public_take_the_users_word() {
    let hosts = json!([
        "10.0.0.1:80",
        "169.254.169.254:80",
        "[::1]:80",
        "[fd00::/8]:80",
        "128.0.0.0/1:80",
        "11.0.0.0/8:80",
        "[2600::/16]:80",
        "*.example:80",
        "127.0.0.1:80"
    ]);
    let mut world = asks_for(hosts);
    let grant = world.grant();
    assert!(grant.egress.is_empty());
    assert_eq!(grant.withheld.len(), 9);
    assert_eq!(
        withheld(&grant)[0],
        ("network 10.0.0.1:80", "its addresses are not public (private, RFC 1918)", Some("--allow-net 10.0.0.1:80"))
    );
    world.allow_net("10.0.0.0/8:80");
    let grant = world.grant();
    assert_eq!((texts(&grant.egress.outbound), grant.withheld.len()), (vec!["10.0.0.0/8:80".into()], 8));
}

#[test]
fn a_ceiling_narrows_what_a_manifest_gets() {
    let mut world = asks_for(json!([
        {"host": "api.acme.example", "ports": [443, 80]}, "*.acme.example", "evil.acme.example", "other.example",
    ]));
    world.ceiling(Some(&["*.acme.example"]), &["evil.acme.example"]);
    let grant = world.grant();
    assert_eq!(texts(&grant.egress.outbound), ["api.acme.example:443", "*.acme.example:443"]);
    assert_eq!(
        withheld(&grant),
        [
            ("network api.acme.example:80", "the policy's ceiling does not allow it (P)", None),
            ("network evil.acme.example:443", "the policy denies evil.acme.example (P)", None),
            ("network other.example:443", "the policy's ceiling does not allow it (P)", None),
        ]
    );
    assert_eq!(grant.egress.denied, ["evil.acme.example".parse().unwrap()]);
    // A second policy: lists of `allow` intersect, those of `deny` add up.
    world.ceiling(Some(&["b.acme.example", "a.acme.example"]), &["a.acme.example:443", "203.0.113.0/24"]);
    let grant = world.grant();
    assert_eq!(texts(&grant.egress.outbound), ["b.acme.example:443"]);
    let of_suffix = withheld(&grant).into_iter().find(|(what, ..)| *what == "network *.acme.example:443");
    assert_eq!(of_suffix.unwrap().1, "the policy's ceiling allows b.acme.example of it alone (P)");
    assert_eq!(grant.egress.denied.len(), 3, "they may be what a name stands for");
    // Nothing is allowed by an empty list, and an absent one is no ceiling.
    let mut world = asks_for(json!(["api.acme.example"]));
    assert!(world.ceiling(None, &[]).grant().withheld.is_empty());
    assert!(world.ceiling(Some(&[]), &[]).grant().egress.is_empty());
}

#[test]
fn a_flag_beyond_the_ceiling_is_denied_by_policy() {
    let mut world = World::new(json!({}));
    world.ceiling(Some(&["*.acme.example:443,80"]), &["evil.acme.example:80"]);
    assert_eq!(texts(&world.allow_net("api.acme.example:443").grant().egress.outbound), ["api.acme.example:443"]);
    let says = |world: &World| {
        let denied = world.denied();
        assert!(!denied.is_usage(), "{denied}");
        denied.to_string()
    };
    world.allow_net("api.acme.example:443,8443");
    assert_eq!(says(&world), "--allow-net api.acme.example:8443: the policy's ceiling does not allow it (P)");
    world.request.network.outbound.clear();
    world.allow_net("evil.acme.example:80");
    assert_eq!(says(&world), "--allow-net evil.acme.example:80: the policy denies evil.acme.example:80 (P)");
    world.request.network.outbound.clear();
    world.allow_net("*.example:443");
    assert_eq!(says(&world), "--allow-net *.example:443: the policy's ceiling allows a part of it alone (P)");
    world.request.network = NetworkFlags { any: true, host_ports: vec![5432], ..NetworkFlags::default() };
    let both = says(&world);
    assert!(both.contains("--allow-host-port 5432: ") && both.contains("--allow-all-net: "), "{both}");
    world.policy.ceilings.network = NetworkCeiling::default();
    world.ceiling(None, &["127.0.0.0/8:5432"]);
    assert_eq!(says(&world), "--allow-host-port 5432: the policy denies 127.0.0.0/8:5432 (P)");
    world.request.network.host_ports = vec![5433];
    assert!(world.grant().egress.any, "what is denied is left out of it");
}

#[test]
fn the_cages_own_loopback_is_told_from_the_hosts() {
    let mut world = World::new(json!({}));
    world.allow_net("127.0.0.1:5432");
    let notes = world.grant().notes;
    assert!(notes.len() == 1 && notes[0].ends_with("--allow-host-port 5432"), "{notes:?}");
}

#[test]
fn e16_a_state_is_granted_as_asked_unless_something_else_is() {
    let asks = || {
        World::new(json!({"permissions": {
            "filesystem": [{"id": "db", "access": "rw", "target": "/state", "from": "state"}]
        }}))
    };
    let mut world = asks();
    let of = |world: &World| world.grant().mounts.iter().map(|m| (m.source.clone(), m.from)).collect::<Vec<_>>();
    let [(source, from)]: [_; 1] = of(&world).try_into().unwrap();
    assert_eq!(from, Origin::State);
    assert!(source.starts_with(world.path("states")) && source.ends_with("default/db"), "{source:?}");
    assert_eq!(world.grant().withheld, []);
    world.request.state = Some("other".parse().unwrap());
    assert_eq!(of(&world)[0].0, source.parent().unwrap().with_file_name("other").join("db"));
    world.request.state = None;
    world.caller.family = "registry.example/a/c".into();
    assert_ne!(of(&world)[0].0, source);
    assert!(!world.path("states").exists(), "a judgement makes nothing");

    let mut world = asks();
    let own = world.make("own");
    world.mount(format!("{}:/state:rw", own.display()));
    assert_eq!(of(&world), [(own, Origin::User)]);
    assert_eq!(world.grant().withheld, []);
}

#[test]
fn e16_home_lasts_where_the_flag_says_so_and_nothing_else_does() {
    let mut world = World::new(json!({}));
    assert_eq!(world.grant().mounts, []);
    world.request.state = Some("work".parse().unwrap());
    let [home]: [Mount; 1] = world.grant().mounts.try_into().unwrap();
    assert_eq!((home.target, home.from, home.access), ("/home/ann".into(), Origin::State, Access::Rw));
    assert!(home.source.ends_with("work/.home"));
    let own = world.make("own");
    world.mount(format!("{}:/home/ann", own.display()));
    assert!(world.denied().is_usage());
}

#[test]
fn subprocesses_are_those_of_the_manifest_and_of_the_flags() {
    let judged = |allow: Value, flag: SubprocessFlag| {
        let mut world = World::new(json!({"permissions": {"subprocess": {"allow": allow}}}));
        world.request.subprocess = flag;
        world.judge().map(|grant| grant.subprocess)
    };
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let (git, sh) = ("/usr/bin/git", "/bin/sh");
    assert_eq!(judged(json!([]), SubprocessFlag::None), Ok(Subprocess::Denied));
    assert_eq!(judged(json!([git]), SubprocessFlag::None), Ok(Subprocess::AllowedPaths(paths(&[git]))));
    assert_eq!(
        judged(json!([git]), SubprocessFlag::Paths(paths(&[sh, git]))),
        Ok(Subprocess::AllowedPaths(paths(&[sh, git])))
    );
    assert_eq!(judged(json!([git]), SubprocessFlag::Any), Ok(Subprocess::AllowedAny));
    assert!(judged(json!([]), SubprocessFlag::Paths(paths(&["git"]))).unwrap_err().is_usage());
}

#[test]
fn every_reason_is_found_at_once() {
    let mut manifest = takes_directory("rw", true);
    manifest["env"] = json!([{"name": "KEY", "required": true}]);
    let mut world = World::new(manifest).env("ABSENT");
    world.mount("missing").mount("/");
    world.request.cwd = Some("gone".into());
    world.request.subprocess = SubprocessFlag::Paths(vec!["git".into()]);
    let denied = world.denied();
    assert_eq!(denied.reasons.len(), 7, "{denied}");
    assert!(!denied.is_usage());
}

#[test]
fn a_plain_image_without_a_program_needs_one() {
    let mut world = World::new(json!({}));
    world.package.origin = PackageOrigin::PlainImage;
    assert_eq!(world.denied().to_string(), "the image names no program to start");
    world.args(&["sh"]);
    let grant = world.grant();
    assert_eq!((grant.command, grant.workdir), (vec!["sh".to_string()], Workdir::Package("/".into())));
}

/// A package must not lift `noexec` from what its own server writes.
#[test]
fn programs_that_the_server_could_have_written_take_the_users_word() {
    let asked = json!({"permissions": {"subprocess": {
        "allow": ["/usr/bin/git", "/tmp", "/tmp/x", "/home/ann/bin/x", "/work/x", "/workshop/x"]
    }}});
    let mut world = World::new(asked);
    let dir = world.make("proj");
    world.mount(format!("{}:/work:rw", dir.display()));
    let grant = world.grant();
    assert_eq!(grant.subprocess, Subprocess::AllowedPaths(vec!["/usr/bin/git".into(), "/workshop/x".into()]));
    let withheld: Vec<_> = grant.withheld.iter().map(|w| w.what.as_str()).collect();
    assert_eq!(withheld, ["starting /tmp", "starting /tmp/x", "starting /home/ann/bin/x", "starting /work/x"]);
}

/// A server with a directory of its own can plant a link where a later grant is.
#[test]
fn a_grant_by_a_link_is_said() {
    let mut world = World::new(json!({}));
    let dir = world.make("proj");
    let link = world.path("link");
    symlink(&dir, &link).unwrap();
    world.mount(&dir).mount(link);
    let notes = world.grant().notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("link: it is a link") && notes[0].contains(dir.to_str().unwrap()), "{notes:?}");
}
