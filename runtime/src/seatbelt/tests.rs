//! Ten manifests and the profiles that come of them, each read by a parser that knows the forms that are used and no other, and asked
//! what it allows. A model: Apple's own engine is on Apple's machines alone.

use super::*;
use std::collections::BTreeMap;
use std::fs;

use bundle::policy::{Judgement, Policy};
use bundle::{
    Bounds, CallerEnv, ImageConfig, Limits, Manifest, MountFlag, NetworkFlags, Package, PackageOrigin, Request, judge,
};
use distribution::Digest;
use serde_json::{Value, json};
use ulid::Ulid;

use crate::identity::{Caller, Identity, UserFlag};
use crate::interpreter::HostInterpreter;
use crate::local::{Place, relocate};
use crate::plan::Plan;

/// A manifest and flags, as a directory of a Mac would have them: HOME is `/Users/ann`.
struct World {
    dir: tempfile::TempDir,
    request: Request,
}

const HOME: &str = "/Users/ann";

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "work/src",
            "work/secret",
            "docs",
            ".local/share/other",
            ".cache/smcp/layers/tree/app",
            ".cache/smcp/layers/tree/usr/bin",
        ] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for path in ["app/server.js", "app/main.py", "usr/bin/server", "usr/bin/git"] {
            fs::write(dir.path().join(".cache/smcp/layers/tree").join(path), "x").unwrap();
        }
        World { dir, request: Request::default() }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn grant(mut self, path: &str, access: bundle::Access) -> World {
        self.request.mounts.push(MountFlag::same_path("--allow-read", self.root().join(path), access));
        self
    }

    fn deny(mut self, path: &str) -> World {
        self.request.denied.push(self.root().join(path));
        self
    }

    fn local(&self, manifest: &Value, host: Option<&HostInterpreter>) -> Result<Local, Refusal> {
        let mut whole = json!({"schemaVersion": 1, "name": "a/b", "version": "1"});
        whole.as_object_mut().unwrap().append(&mut manifest.as_object().unwrap().clone());
        let (max, policy) = (Limits::default(), Policy::default());
        let judgement = Judgement {
            standing: Default::default(),
            against: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
            certified_otherwise: false,
        };
        let package = Package {
            manifest: Manifest::from_value(&whole).unwrap(),
            origin: PackageOrigin::Smcp,
            config: ImageConfig::default(),
            digest: Digest::of(""),
            manifest_digest: Digest::of(""),
            layers: Vec::new(),
        };
        let caller = CallerEnv {
            vars: BTreeMap::new(),
            cwd: self.root(),
            user: "ann".into(),
            home: self.root(),
            states: self.root().join(".local/state/smcp/servers"),
            family: "registry.example/a/b".into(),
            protected: Vec::new(),
            program: None,
        };
        let grant =
            judge(&package, &self.request, &Bounds { max: &max, policy: &policy, judgement: &judgement }, &caller);
        let grant = grant.unwrap_or_else(|denied| panic!("{denied:?}"));
        let ann = Caller { uid: 501, gid: 20, user: "ann".into(), home: self.root() };
        let identity = Identity::of_caller(&ann, UserFlag::Default, 1);
        let plan = Plan::new(&grant, self.root().join(".cache/smcp/layers/tree"), identity, host);
        let place = Place::make(&self.root().join(".local/state/smcp/private"), Ulid::from(1_u128)).unwrap();
        Ok(self.moved(relocate(&plan, &place)?))
    }

    /// The same with HOME where a Mac has it.
    fn moved(&self, local: Local) -> Local {
        let root = self.root();
        let one = |path: &Path| {
            path.strip_prefix(&root).map_or(path.to_owned(), |rest| {
                crate::interpreter::literal(Path::new(HOME).join(rest).components().collect())
            })
        };
        let all = |paths: &BTreeSet<PathBuf>| paths.iter().map(|path| one(path)).collect();
        Local {
            program: local.program.as_deref().map(one),
            read: all(&local.read),
            write: all(&local.write),
            denied: all(&local.denied),
            execute: match &local.execute {
                Execute::These(files) => Execute::These(all(files)),
                Execute::All => Execute::All,
            },
            ..local
        }
    }

    fn profile(&self, manifest: &Value) -> Profile {
        let args = manifest["entrypoint"]["args"][0].as_str().unwrap();
        let host = HostInterpreter { name: args.into(), ..node() };
        let host = if args == "python3" {
            HostInterpreter { program: "/opt/homebrew/Cellar/python@3.13/3.13.1/bin/python3.13".into(), ..host }
        } else {
            host
        };
        let local = self.local(manifest, Some(&host)).unwrap_or_else(|why| panic!("{why}"));
        Profile::read(profile(&local, Path::new(HOME)).unwrap())
    }
}

fn node() -> HostInterpreter {
    let mounts = ["/opt/homebrew/Cellar", "/opt/homebrew/opt", "/opt/homebrew/lib"].map(PathBuf::from).to_vec();
    HostInterpreter {
        name: "node".into(),
        program: "/opt/homebrew/Cellar/node/22.1.0/bin/node".into(),
        mounts,
        links: BTreeMap::new(),
    }
}

fn of_node() -> Value {
    json!({"entrypoint": {"args": ["node", "/app/server.js"], "workdir": "/app"}})
}

fn with(mut manifest: Value, key: &str, value: Value) -> Value {
    manifest[key] = value;
    manifest
}

#[test]
fn ten_manifests() {
    use bundle::Access::{Ro, Rw};
    let by_port = |outbound: Value, host_ports: Vec<u16>| {
        let mut world = World::new();
        world.request.network = NetworkFlags { by_port: true, host_ports, ..NetworkFlags::default() };
        (world, with(of_node(), "permissions", json!({"network": {"outbound": outbound}})))
    };
    let state = json!({"filesystem": [{"id": "s", "access": "rw", "target": "/state", "from": "state"}]});
    let outbound = json!([{"host": "api.acme.example", "ports": [443, 8443]}]);
    let with_port = by_port(json!([]), vec![3128]);
    let with_host = by_port(outbound, vec![]);
    let with_both = by_port(json!([{"host": "api.acme.example", "ports": [5432]}]), vec![5432]);
    let table = [
        ("node", World::new(), of_node()),
        ("python", World::new(), json!({"entrypoint": {"args": ["python3", "/app/main.py"]}})),
        ("binary", World::new(), json!({"entrypoint": {"args": ["/usr/bin/server", "--stdio"]}})),
        ("read-only", World::new().grant("docs", Ro), of_node()),
        ("read-write", World::new().grant("work", Rw).grant("docs", Ro), of_node()),
        ("hidden", World::new().grant("work", Rw).deny("work/secret"), of_node()),
        ("state", World::new(), with(of_node(), "permissions", state)),
        ("host-port", with_port.0, with_port.1),
        ("outbound", with_host.0, with_host.1),
        (
            "subprocess",
            World::new(),
            with(of_node(), "permissions", json!({"subprocess": {"allow": ["/usr/bin/git"]}})),
        ),
        ("both-ports", with_both.0, with_both.1),
    ];
    let snapshots = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/seatbelt");
    for (name, mut world, manifest) in table {
        if name == "subprocess" {
            world.request.subprocess = bundle::SubprocessFlag::Paths(vec!["/usr/bin/git".into()]);
        }
        let profile = world.profile(&manifest);
        let file = snapshots.join(format!("{name}.sb"));
        if std::env::var_os("SMCP_WRITE_PROFILES").is_some() {
            fs::write(&file, &profile.text).unwrap();
        }
        let known = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(profile.text, known, "{name}: SMCP_WRITE_PROFILES=1 writes what is new");
        // What no server may, whatever it was granted here.
        for (operation, about) in [
            ("file-read-data", "/Users/ann/.ssh/id_ed25519"),
            ("file-read-data", "/Users/ann/.local/share/other/file"),
            ("file-write-create", "/Users/ann/.local/bin/node"),
            ("file-read-data", "/Users/ann/.cache/smcp/index.json"),
            ("file-read-data", "/Users/ann"),
            ("file-write-data", "/Users/ann/.cache/smcp/layers/tree/app/server.js"),
            ("file-write-create", "/usr/lib/x"),
            ("file-read-data", "/Library/Keychains/System.keychain"),
            ("process-exec*", "/bin/sh"),
            ("file-map-executable", "/Users/ann/.local/state/smcp/private/00000000000000000000000001/tmp/x.dylib"),
            ("signal", "others"),
            ("mach-lookup", "com.apple.securityd"),
            ("network-bind", "*:80"),
            ("network-outbound", "*:22"),
            ("network-outbound", "localhost:22"),
        ] {
            assert!(!profile.allows(operation, about), "{name}: {operation} {about}");
        }
        // What every server needs.
        for (operation, about) in [
            ("file-read-data", "/usr/lib/libSystem.B.dylib"),
            ("file-read-metadata", "/Users"),
            ("file-write-create", "/Users/ann/.local/state/smcp/private/00000000000000000000000001/home/x"),
            ("file-read-data", "/Users/ann/.cache/smcp/layers/tree/app/server.js"),
            ("signal", "same-sandbox"),
            ("process-fork", ""),
        ] {
            assert!(profile.allows(operation, about), "{name}: {operation} {about}");
        }
    }
}

#[test]
fn what_is_granted_is_allowed_and_no_more() {
    use bundle::Access::{Ro, Rw};
    let profile = World::new().grant("work", Rw).grant("docs", Ro).deny("work/secret").profile(&of_node());
    assert!(profile.allows("file-write-create", "/Users/ann/work/src/new"));
    assert!(
        profile.allows("file-read-data", "/Users/ann/docs/x")
            && !profile.allows("file-write-data", "/Users/ann/docs/x")
    );
    assert!(!profile.allows("file-read-data", "/Users/ann/work/secret/x"));
    assert!(!profile.allows("file-read-data", "/Users/ann/works"), "a neighbour whose name begins the same");
    assert!(!profile.allows("file-map-executable", "/Users/ann/work/x.dylib"), "what can be written is no library");
    assert!(profile.allows("process-exec*", "/opt/homebrew/Cellar/node/22.1.0/bin/node"));
    assert!(!profile.allows("network-outbound", "*:443") && !profile.allows("system-socket", ""));
}

/// Also in a directory that is granted by itself where smcp keeps its own.
#[test]
fn what_is_denied_stays_denied() {
    let world = World::new();
    fs::create_dir_all(world.root().join(".cache/project/secret")).unwrap();
    let profile = world.grant(".cache/project", bundle::Access::Rw).deny(".cache/project/secret").profile(&of_node());
    assert!(profile.allows("file-read-data", "/Users/ann/.cache/project/x"));
    assert!(!profile.allows("file-read-data", "/Users/ann/.cache/project/secret/x"));
    let profile = World::new().grant("", bundle::Access::Rw).deny(".cache").profile(&of_node());
    assert!(!profile.allows("file-read-data", "/Users/ann/.cache/smcp/index.json"));
    assert!(profile.allows("file-read-data", "/Users/ann/.cache/smcp/layers/tree/app/server.js"), "the package itself");
}

/// Whoever grants all of HOME grants nothing of `.local` with it.
#[test]
fn a_granted_home_is_without_local() {
    let profile = World::new().grant("", bundle::Access::Rw).profile(&of_node());
    assert!(profile.allows("file-read-data", "/Users/ann/docs/x"));
    assert!(!profile.allows("file-read-data", "/Users/ann/.local/share/other/file"));
    assert!(
        profile.allows("file-write-create", "/Users/ann/.local/state/smcp/private/00000000000000000000000001/tmp/x")
    );
}

#[test]
fn ports_are_all_of_the_network() {
    let mut world = World::new();
    world.request.network = NetworkFlags { by_port: true, host_ports: vec![3128], ..NetworkFlags::default() };
    let profile = world.profile(&with(
        of_node(),
        "permissions",
        json!({"network": {"outbound": [{"host": "a.example", "ports": [443]}]}}),
    ));
    assert!(profile.allows("network-outbound", "*:443") && profile.allows("network-outbound", "localhost:3128"));
    assert!(!profile.allows("network-outbound", "localhost:443"), "this machine's own services");
    assert!(!profile.allows("network-outbound", "*:3128") && !profile.allows("network-inbound", "*:443"));
}

#[test]
fn what_needs_another_root_is_refused() {
    let mut world = World::new();
    world.request.mounts.push("/tmp:/elsewhere".parse().unwrap());
    let why = world.local(&of_node(), Some(&node())).unwrap_err();
    assert!(why.what.contains("the grant /tmp"), "{why}");
    let named =
        with(of_node(), "permissions", json!({"network": {"outbound": [{"host": "a.example", "ports": [443]}]}}));
    let why = World::new().local(&named, Some(&node())).unwrap_err();
    assert!(why.hint.unwrap().contains("--net-by-port"));
}

/// A Mac without sandbox-exec, or that does not take the profile: nothing runs unless policy accepts limits alone, and then the report
/// names what is not kept apart, the network too where nothing of it is granted.
#[test]
fn without_a_sandbox_limits_alone_are_accepted_by_policy() {
    let absent = Status::Absent("failed: /usr/bin/sandbox-exec cannot be started: not found".into());
    for lacking in [absent.clone(), Status::Partial("nobody looked".into())] {
        for least in [Tier::One, Tier::Two, Tier::Three] {
            let refused = judged(lacking.clone(), false, least).unwrap_err();
            assert!(refused.hint.unwrap().contains("policy.min_tier 0"), "{least}");
        }
        for grants_network in [false, true] {
            let report = judged(lacking.clone(), grants_network, Tier::Zero).unwrap();
            assert_eq!(report.tier(), Tier::Zero);
            assert_eq!(report.status(Layer::Seatbelt), Some(&lacking));
            assert!(matches!(report.status(Layer::Egress), Some(Status::Absent(_))), "{report:?}");
            assert_eq!(report.missing().collect::<Vec<_>>(), [(Layer::Seatbelt, &lacking)]);
        }
    }
    let shut = judged(Status::Full, false, Tier::Zero).unwrap();
    assert_eq!((shut.tier(), shut.status(Layer::Egress), shut.missing().count()), (Tier::One, None, 0));
    let ports = judged(Status::Full, true, Tier::One).unwrap();
    assert!(matches!(ports.status(Layer::Egress), Some(Status::Partial(_))), "{ports:?}");
}

#[test]
fn a_path_cannot_end_its_string() {
    assert_eq!(quoted(Path::new(r#"/a"b\c) (allow default"#)).unwrap(), r#""/a\"b\\c) (allow default""#);
    assert!(quoted(Path::new("/a\nb")).is_err());
    let local = Local { read: [r#"/x") (allow default) ("#.into()].into(), ..Local::default() };
    let profile = Profile::read(profile(&local, Path::new(HOME)).unwrap());
    assert!(!profile.allows("process-exec*", "/bin/sh"));
    assert!(profile.allows("file-read-data", r#"/x") (allow default) (/y"#));
}

/// A profile that was read back.
struct Profile {
    text: String,
    rules: Vec<Rule>,
}

struct Rule {
    allows: bool,
    operations: Vec<String>,
    /// None: whatever it is about.
    filters: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Word(String),
    Text(String),
    List(Vec<Form>),
}

impl Profile {
    /// Reads it; whatever is not known is an error.
    fn read(text: String) -> Profile {
        let forms = parse(&text);
        assert_eq!(forms[0], Form::List(vec![word("version"), word("1")]));
        assert_eq!(forms[1], Form::List(vec![word("deny"), word("default")]), "the first rule denies everything");
        let rules = forms[2..].iter().map(rule_of).collect();
        Profile { text, rules }
    }

    /// What the last rule says that is about it; nothing is allowed where none is.
    fn allows(&self, operation: &str, about: &str) -> bool {
        let last = self.rules.iter().rev().find(|rule| rule.is_about(operation, about));
        last.is_some_and(|rule| rule.allows)
    }
}

fn word(text: &str) -> Form {
    Form::Word(text.into())
}

/// The operations that are used, and what they are about.
const OPERATIONS: [(&str, &[&str]); 18] = [
    ("process-fork", &[]),
    ("process-exec*", &["literal", "subpath"]),
    ("process-info*", &["target"]),
    ("signal", &["target"]),
    ("sysctl-read", &[]),
    ("ipc-posix-sem", &[]),
    ("system-socket", &[]),
    ("mach-lookup", &["global-name"]),
    ("file-read*", &["literal", "subpath"]),
    ("file-read-metadata", &["literal", "subpath"]),
    ("file-test-existence", &["literal", "subpath"]),
    ("file-write*", &["literal", "subpath"]),
    ("file-write-data", &["literal", "subpath"]),
    ("file-ioctl", &["literal"]),
    ("file-map-executable", &["literal", "subpath"]),
    ("network-outbound", &["remote", "literal"]),
    ("network-inbound", &[]),
    ("network-bind", &[]),
];

fn rule_of(form: &Form) -> Rule {
    let Form::List(parts) = form else { panic!("{form:?} stands outside of a rule") };
    let allows = match &parts[0] {
        Form::Word(word) if word == "allow" => true,
        Form::Word(word) if word == "deny" => false,
        other => panic!("{other:?} is no rule"),
    };
    let (mut operations, mut filters) = (Vec::new(), Vec::new());
    for part in &parts[1..] {
        match part {
            Form::Word(operation) if filters.is_empty() => {
                assert!(OPERATIONS.iter().any(|(known, _)| known == operation), "{operation} is not known");
                operations.push(operation.clone());
            }
            Form::List(filter) => {
                let words: Vec<_> = filter
                    .iter()
                    .map(|form| match form {
                        Form::Word(text) | Form::Text(text) => text.clone(),
                        Form::List(_) => panic!("{filter:?} is not known"),
                    })
                    .collect();
                let kind = words[0].clone();
                for operation in &operations {
                    let (_, known) = OPERATIONS.iter().find(|(known, _)| known == operation).unwrap();
                    assert!(known.contains(&kind.as_str()), "{operation} is not about {kind}");
                }
                let is_text = matches!(filter.last(), Some(Form::Text(_)));
                assert_eq!(is_text, kind != "target", "{filter:?}");
                if kind == "remote" {
                    assert_eq!((words.len(), words[1].as_str()), (3, "tcp"), "{words:?}");
                    let (host, port) = words[2].split_once(':').unwrap();
                    assert!(["*", "localhost"].contains(&host), "an address is none: {words:?}");
                    port.parse::<u16>().unwrap();
                } else {
                    assert_eq!(words.len(), 2, "{words:?}");
                }
                if ["literal", "subpath"].contains(&kind.as_str()) {
                    assert!(words[1].starts_with('/'), "{words:?}");
                }
                filters.push((kind, words.last().unwrap().clone()));
            }
            other => panic!("{other:?} stands in a rule"),
        }
    }
    assert!(!operations.is_empty());
    Rule { allows, operations, filters }
}

impl Rule {
    fn is_about(&self, operation: &str, about: &str) -> bool {
        let named = self.operations.iter().any(|known| match known.strip_suffix('*') {
            Some(kind) => operation == known || operation.starts_with(kind),
            None => operation == known,
        });
        named
            && (self.filters.is_empty()
                || self.filters.iter().any(|(kind, value)| match kind.as_str() {
                    "subpath" => Path::new(about).starts_with(value),
                    // Every port of this machine is one of some host.
                    "remote" if value.starts_with("*:") => about.rsplit(':').next() == value.rsplit(':').next(),
                    _ => about == value,
                }))
    }
}

fn parse(text: &str) -> Vec<Form> {
    let mut open: Vec<Vec<Form>> = vec![Vec::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ';' => while chars.next().is_some_and(|c| c != '\n') {},
            c if c.is_whitespace() => {}
            '(' => open.push(Vec::new()),
            ')' => {
                let list = open.pop().unwrap();
                open.last_mut().expect("a ) without its (").push(Form::List(list));
            }
            '"' => {
                let mut string = String::new();
                loop {
                    match chars.next().expect("a string ends") {
                        '"' => break,
                        '\\' => string.push(chars.next().unwrap()),
                        c => string.push(c),
                    }
                }
                open.last_mut().unwrap().push(Form::Text(string));
            }
            c => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !"()\";".contains(*c)) {
                    word.push(c);
                }
                open.last_mut().unwrap().push(Form::Word(word));
            }
        }
    }
    assert_eq!(open.len(), 1, "a ( without its )");
    open.pop().unwrap()
}
