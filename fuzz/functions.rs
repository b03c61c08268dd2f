//! What is fuzzed: each function takes any bytes, and panics where something is wrong with what came of them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bundle::attest::{
    Bundle, Envelope, Form, IN_TOTO, Item, Outcome, PublicKey, Signers, SigningKey, SimpleSigning, TrustedKey, verify,
};
use bundle::policy::{Pattern, Policy, Section, Source, Sourced, Tools};
use bundle::{
    Asked, Below, ImageConfig, LABEL, Listing, Manifest, Order, Package, PackageOrigin, UnpackError, extract,
    in_this_process, prepare,
};
use distribution::{
    Descriptor, Digest, Document, Freshness, Image, ImageManifest, LayerLock, Mode, Network, Reference, Resolved,
    Rules, Source as Origin, Store, Way, media_type,
};
use runtime::egress::Name;
use runtime::egress::dns::{self, Verdict};
use runtime::egress::hello::{self, Look};
use serde_json::{Value, json};
use smcp::clients::dialect::Dialect;
use smcp::clients::{Changed, every_change};
use smcp::handshake::{Channels, Due, Duties, Handshake, Last, Output, Passed, json as places, lines};
use smcp::settings::Settings;

/// A text that is a reference is the same reference in its canonical form.
pub fn reference(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(reference) = text.parse::<Reference>() {
        let canonical = reference.to_string();
        assert_eq!(canonical.parse::<Reference>().as_ref(), Ok(&reference), "{text:?} became {canonical:?}");
    }
}

/// Manifests of packages, of images, indexes, configurations: what is taken can be written and is taken again.
pub fn manifest(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::parse(bytes) {
        let label = manifest.to_label();
        let again = Manifest::parse(label.as_bytes()).unwrap_or_else(|why| panic!("{label}: {why}"));
        assert_eq!(again.to_label(), label);
    }
    for kind in [media_type::OCI_MANIFEST, media_type::OCI_INDEX, media_type::DOCKER_MANIFEST, media_type::DOCKER_INDEX]
    {
        if let Ok(Document::Manifest(manifest)) = Document::parse(bytes, kind) {
            assert!(Document::parse(&manifest.to_bytes(), kind).is_ok());
        }
    }
    if let Ok(config) = ImageConfig::parse(bytes) {
        assert!(ImageConfig::parse(&config.to_bytes()).is_ok());
    }
}

/// The policy section of a file: what is taken says where each of its values is from, and holds against any other policy.
pub fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(section) = serde_saphyr::from_str::<Section>(text) else { return };
    let Ok(policy) = section.read(Path::new("/p.yaml"), Some(Path::new("/home/me"))) else { return };
    let lines = text.lines().count().max(1) as u64;
    for row in policy.shown() {
        if let Source::File { line, .. } = row.source {
            assert!((1..=lines).contains(&line), "{} is of line {line}", row.key);
        }
    }
    let open = Policy::of_variable("X", "cert_level_mode", "disabled", None).expect("a key").expect("a word");
    for both in [policy.clone().stricter(open.clone()), open.stricter(policy.clone())] {
        assert_eq!(both.min_cert_level().value, policy.min_cert_level().value);
        assert!(both.min_cert_level().value == 0 || both.cert_level_mode().value >= policy.cert_level_mode().value);
    }
}

/// An archive, after a byte that says of which form and by which rules, and whether the sums of what looks like headers are to be set
/// right first, without which hardly a change would be read any further: whatever came of it lies in its directory, and is nothing
/// but directories, files and links.
pub fn archive(bytes: &[u8]) {
    let Some((how, archive)) = bytes.split_first() else { return };
    let mut archive = archive.to_vec();
    if how & 0x20 != 0 {
        set_sums_right(&mut archive);
    }
    let media_type =
        [media_type::LAYER_TAR, media_type::LAYER_TAR_GZIP, media_type::LAYER_TAR_ZSTD][usize::from(how % 3)];
    let rules = if how & 0x40 == 0 { Rules::Strict } else { Rules::Lenient };
    let below = if how & 0x80 == 0 { Below::Nothing } else { Below::Layers };
    let place = tempfile::tempdir().expect("a temporary directory can be made");
    let into = place.path().join("into");
    fs::create_dir(&into).expect("it is ours");
    fs::write(place.path().join("beside"), "beside").expect("it is ours");
    let handle = fs::File::open(&into).expect("it was just made");
    let order = Order { media_type: media_type.into(), rules, below };
    let _ = extract(&*archive, &order, handle.into());
    is_plain(&into);
    assert_eq!(fs::read_dir(place.path()).expect("it is ours").count(), 2);
    let beside = fs::metadata(place.path().join("beside")).expect("it is there");
    assert_eq!((beside.len(), beside.nlink()), (6, 1));
}

fn set_sums_right(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

fn is_plain(directory: &Path) {
    for entry in fs::read_dir(directory).expect("its owner can list it") {
        let path = entry.expect("nothing removes it").path();
        let about = fs::symlink_metadata(&path).expect("it is there");
        let kind = about.file_type();
        assert!(kind.is_dir() || kind.is_file() || kind.is_symlink(), "{path:?}");
        assert!(kind.is_symlink() || about.permissions().mode() & 0o6000 == 0, "{path:?}");
        if kind.is_dir() {
            is_plain(&path);
        }
    }
}

/// A message to the resolver inside cages, after a byte that says what its question is answered by: nothing but a question is
/// answered, once, in what any client takes.
pub fn dns(bytes: &[u8]) {
    let Some((how, message)) = bytes.split_first() else { return };
    let verdict = match how % 5 {
        0 => Verdict::Addresses(Some([30, 18, 1, 0].into()), Some(1.into())),
        1 => Verdict::Pointer(Name::new("granted.test").expect("it is one")),
        2 => Verdict::Nothing,
        3 => Verdict::NoSuchName,
        _ => Verdict::Failure,
    };
    if let Some(answer) = dns::answer(message, |_| verdict) {
        assert!(answer.len() <= 512, "{} bytes", answer.len());
        assert_eq!(answer[..2], message[..2], "the id");
        assert!(message[2] & 0x80 == 0 && answer[2] & 0x80 != 0, "an answer to a question");
        assert_eq!(dns::answer(&answer, |_| Verdict::Failure), None, "answers are not answered");
    }
}

/// What a client sends first: once it is judged, more of it changes nothing.
pub fn hello(bytes: &[u8]) {
    let whole = hello::look(bytes);
    for length in [1, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let part = hello::look(&bytes[..length.min(bytes.len())]);
        assert!(part == Look::More || part == whole, "{length}: {part:?}, then {whole:?}");
    }
}

/// A session, after a byte that says what is due: its parts are the client's and the server's in turn, with a zero between.
/// However they are cut, the same comes out; and what is due makes no line JSON that was none, nor the other way round.
pub fn handshake(bytes: &[u8]) {
    let Some((how, session)) = bytes.split_first() else { return };
    let channels =
        Channels { instructions: how & 1 != 0, tools: how & 2 != 0, result: how & 4 != 0, notification: how & 8 != 0 };
    let due = Due { text: "[smcp] W.".into(), channels, otherwise: Channels::ALL };
    let denied = Sourced { value: Pattern::new("b*").expect("it is one"), source: Source::Default };
    let tools = Tools { deny: vec![denied], ..Tools::default() };
    let duties = Duties {
        warning: (how & 16 != 0).then_some(due),
        tools: (how & 32 != 0).then_some(tools),
        ..Duties::default()
    };
    let whole = played(&duties, session, usize::MAX);
    assert_eq!(played(&duties, session, 1 + usize::from(how >> 6)), whole);
    let plain = played(&Duties::default(), session, usize::MAX);
    let valid = |out: &Output| {
        let lines = out.to_client.split(|byte| *byte == b'\n');
        lines.filter(|line| serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()).count()
    };
    assert_eq!(whole.stray, plain.stray);
    if how & 32 == 0 {
        // But for notifications, each of which is one.
        let notes = String::from_utf8_lossy(&whole.to_client).matches("\"logger\":\"smcp\"").count();
        assert!((valid(&plain)..=valid(&plain) + notes).contains(&valid(&whole)));
    }
}

fn played(duties: &Duties, session: &[u8], size: usize) -> Output {
    let mut state = Handshake::new(duties.clone());
    let mut all = Output::default();
    for (at, said) in session.split(|byte| *byte == 0).enumerate() {
        for part in said.chunks(size) {
            let is_client = at % 2 == 0;
            let passed = if is_client { state.client(part, &mut all) } else { state.server(part, &mut all) };
            if passed.expect("nothing here is too large") == Passed::AsTheyCame {
                let to = if is_client { &mut all.to_server } else { &mut all.to_client };
                to.extend_from_slice(part);
            }
        }
    }
    state.client_ended(&Last::default(), &mut all);
    state.server_ended(&mut all);
    all
}

/// The key that signs what is fuzzed, RFC 8410's example.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";

/// What lies beside a package: what is taken can be written, and is the same when it is read again.
pub fn envelope(bytes: &[u8]) {
    let key = SigningKey::from_pem(KEY.as_bytes(), None).expect("it is one").public();
    let parsed = [Envelope::parse(bytes).ok(), Bundle::parse(bytes).ok().map(|bundle| bundle.envelope().clone())];
    for envelope in parsed.into_iter().flatten() {
        assert_eq!(Bundle::parse(&Bundle::write(&envelope, &key)), Ok(Bundle::Key(envelope)));
    }
    if let Ok(payload) = SimpleSigning::parse(bytes) {
        assert_eq!(SimpleSigning::parse(&SimpleSigning::write(&payload.digest, "x")), Ok(payload));
    }
    if let Ok(key) = PublicKey::from_pem(bytes) {
        assert_eq!(PublicKey::from_pem(key.to_pem().as_bytes()), Ok(key));
    }
    let _ = SigningKey::from_pem(bytes, None);
}

/// How many things are said by somebody whose word counts.
fn words_of(outcome: &Outcome) -> usize {
    let evidence = &outcome.evidence;
    evidence.signatures.len() + evidence.certifications.len() + evidence.revocations.len() + outcome.others.len()
}

/// Any statement, signed by a key whose word counts: one thing is said at most, within its bounds, and nothing once a bit is another.
pub fn attestation(statement: &[u8]) {
    let key = SigningKey::from_pem(KEY.as_bytes(), None).expect("it is one");
    let trusted = [TrustedKey { file: "k".into(), key: key.public() }];
    let signers = Signers { keys: &trusted, ..Signers::default() };
    let about = [Digest::of("")];
    let now = "2026-06-01T00:00:00Z".parse().expect("it is a time");
    let envelope = Envelope::sign(IN_TOTO, statement.to_vec(), &key).expect("Ed25519 takes no chance");
    let said = |envelope: &Envelope| {
        let text = String::from_utf8(Bundle::write(envelope, &key.public())).expect("it is JSON");
        let item = Item { form: Form::Bundle, text };
        let outcome = verify(&about, &[item], &signers, now, Listing::Complete);
        let evidence = &outcome.evidence;
        for said in &evidence.certifications {
            assert!(said.level <= 3 && said.score.is_none_or(|score| score <= 100));
        }
        assert!(evidence.revocations.iter().all(|said| said.reason.chars().count() <= 500));
        let words = words_of(&outcome);
        assert_eq!(words + evidence.rejected.len(), 1);
        words
    };
    said(&envelope);
    if let Some(last) = statement.len().checked_sub(1) {
        let mut changed = envelope;
        changed.payload[last] ^= 1;
        assert_eq!(said(&changed), 0);
    }
}

/// Files of AI clients: whatever smcp makes of one says elsewhere what it said, by readers that smcp does not use for it. It finds its
/// places by another one of each language, so what that takes for a place these may not.
pub fn clients(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for Changed { client, entry, text: after } in every_change(text) {
        let Some(before) = read_otherwise(client.dialect, text) else { continue };
        let now = read_otherwise(client.dialect, &after)
            .unwrap_or_else(|| panic!("{}: {text:?} became {after:?}, which cannot be read", client.id));
        // In a list, a server without a name is told by its place.
        let places = client.shape.at.iter().filter(|_| client.shape.is_list);
        let places = places.map(|names| names.iter().map(|name| format!("/{name:?}")).collect());
        let lists: Vec<String> = places.collect();
        let [before, now] = [before, now].map(|value| {
            let mut rest = Vec::new();
            elsewhere(&value, (&entry, &lists), &mut String::new(), &mut rest);
            rest.sort();
            rest
        });
        assert_eq!(before, now, "{}: {text:?} became {after:?}", client.id);
    }
}

fn read_otherwise(dialect: Dialect, text: &str) -> Option<Value> {
    match dialect {
        Dialect::Json => serde_json::from_str(text).ok(),
        Dialect::Toml => toml::from_str(text).ok(),
        Dialect::Yaml => serde_saphyr::from_str(text).ok(),
    }
}

/// What is said outside of the servers of this name, and of those in a list that have none: each value with the names that lead
/// to it.
fn elsewhere(value: &Value, (entry, lists): (&str, &[String]), at: &mut String, found: &mut Vec<String>) {
    let length = at.len();
    let is_list_of_servers = lists.contains(at);
    let is_nameless = |item: &&Value| is_list_of_servers && !item["name"].is_string();
    match value {
        Value::Object(map) if map.get("name").is_some_and(|name| name == entry) => {}
        Value::Object(map) => {
            for (name, value) in map.iter().filter(|(name, _)| *name != entry) {
                at.push_str(&format!("/{name:?}"));
                elsewhere(value, (entry, lists), at, found);
                at.truncate(length);
            }
        }
        Value::Array(items) => items.iter().filter(|item| !is_nameless(item)).for_each(|item| {
            at.push_str("[]");
            elsewhere(item, (entry, lists), at, found);
            at.truncate(length);
        }),
        scalar => found.push(format!("{at} {scalar}")),
    }
}

/// The label of an image: it comes out of a configuration as it went in, and what its manifest asks for is nothing beyond itself.
pub fn label(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let config = json!({"architecture": "amd64", "os": "linux", "config": {"Labels": {LABEL: text}}, "rootfs": {"type": "layers", "diff_ids": []}});
    let config = ImageConfig::parse(config.to_string().as_bytes()).expect("it is one");
    let again = ImageConfig::parse(&config.to_bytes()).expect("it was one");
    assert_eq!(again.config.labels.get(LABEL).map(String::as_str), Some(text));
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    let asked = Asked::of(&manifest);
    assert_eq!(asked.beyond(&asked), Vec::<String>::new());
    let kept = serde_json::to_string(&asked).expect("it is JSON");
    assert_eq!(serde_json::from_str::<Asked>(&kept).ok(), Some(asked.clone()), "{kept}");
    assert_eq!(asked.beyond(&Asked::default()).is_empty(), asked == Asked::default(), "{kept}");
}

/// A configuration file: what is wrong is told with the file's name, and reading it again says the same.
pub fn configuration(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("a temporary directory can be made");
    let path = place.path().join("config.yaml");
    fs::write(&path, bytes).expect("it is ours");
    let read = || Settings::read(Some(&path));
    match (read(), read()) {
        (Ok(one), Ok(other)) => {
            let policy = |settings: &Settings| format!("{:?}", settings.policy(Policy::default()).shown());
            assert_eq!(policy(&one), policy(&other));
            assert!(one.audit_max_size >= 4096 && one.audit_log.is_absolute() && one.cache.is_absolute());
        }
        (Err(one), Err(other)) => {
            assert_eq!((one.code, &one.message), (other.code, &other.message));
            assert_eq!(one.code, smcp::exit::CONFIGURATION);
            assert!(one.message.contains("config.yaml"), "{}", one.message);
        }
        _ => panic!("it is read in two ways"),
    }
}

/// A line of the protocol: what another reader of JSON sees in it is seen in the same places, and more of a line changes nothing of what
/// it is taken for.
pub fn line(bytes: &[u8]) {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let kind = lines::kind(line);
    for length in 0..line.len().min(2 * lines::LOOKED_AT) {
        assert!(lines::kind(&line[..length]).is_none_or(|early| Some(early) == kind), "{length}");
    }
    let Ok(value) = serde_json::from_slice::<Value>(line) else { return };
    let place = places::value(line).expect("serde_json reads it");
    same(line, &place, &value);
    // Whoever puts that much white space between two brackets is not understood.
    let of_messages = |items: &Vec<Value>| items.first().is_some_and(Value::is_object);
    let is_message = value.is_object() || value.as_array().is_some_and(of_messages);
    let blanks = line.iter().take_while(|byte| !matches!(byte, b'"' | b'}')).count();
    if blanks < lines::LOOKED_AT && is_message {
        assert_eq!(kind, Some(lines::Kind::Message));
    }
}

fn same(line: &[u8], place: &places::Span, value: &Value) {
    match value {
        Value::Object(map) => {
            let members = places::members(line, place).expect("it is an object");
            let key = |member: &places::Member| places::unescaped(&line[member.key.clone()]);
            assert!(members.iter().all(|member| map.contains_key(&key(member))));
            for (name, value) in map {
                // Of equal names the last counts there.
                let member = members.iter().rfind(|member| key(member) == *name).expect("it is a member");
                assert!(!name.is_ascii() || places::means(&line[member.key.clone()], name));
                same(line, &member.value, value);
            }
        }
        Value::Array(items) => {
            let elements = places::elements(line, place).expect("it is an array");
            assert_eq!(elements.len(), items.len());
            elements.iter().zip(items).for_each(|(place, value)| same(line, place, value));
        }
        Value::String(text) => assert_eq!(places::unescaped(&line[place.start + 1..place.end - 1]), *text),
        scalar => assert_eq!(serde_json::from_slice::<Value>(&line[place.clone()]).ok().as_ref(), Some(scalar)),
    }
}

/// Layers of one image, two bytes an entry and a zero between layers: the tree that they make together is that of a model.
pub fn whiteouts(bytes: &[u8]) {
    let mut model = BTreeMap::new();
    let mut archives = Vec::new();
    for entries in bytes.split(|byte| *byte == 0).filter(|entries| entries.len() >= 2).take(4) {
        let entries: Vec<Entry> = entries.chunks_exact(2).take(12).map(|pair| Entry::of([pair[0], pair[1]])).collect();
        archives.push(layer(&entries, &mut model));
    }
    if archives.is_empty() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory can be made");
    let store = Store::open(place.path()).expect("it can be made");
    let tree = merged(&store, &archives).unwrap_or_else(|why| panic!("{why}"));
    let mut found = BTreeMap::new();
    list(tree.path(), Path::new(""), &mut found);
    assert_eq!(found, model);
}

/// A path and, of a file, its one byte.
type Tree = BTreeMap<PathBuf, Option<u8>>;

struct Entry {
    what: Means,
    path: &'static str,
}

#[derive(PartialEq)]
enum Means {
    File(u8),
    Directory,
    Gone,
    Opaque,
}

impl Entry {
    fn of([what, name]: [u8; 2]) -> Entry {
        const PATHS: [&str; 9] = ["a", "b", "a/a", "a/b", "b/a", "b/b", "a/a/a", "a/a/b", "b/b/a"];
        let what = match what % 4 {
            0 => Means::File(what),
            1 => Means::Directory,
            2 => Means::Gone,
            _ => Means::Opaque,
        };
        Entry { what, path: PATHS[usize::from(name) % PATHS.len()] }
    }
}

/// The archive of a layer above a tree, which becomes what both are together. An entry that does not go with those before it is left out.
fn layer(entries: &[Entry], below: &mut Tree) -> Vec<u8> {
    let (lower, mut own) = (below.clone(), BTreeMap::new());
    let mut archive = Vec::new();
    for Entry { what, path } in entries {
        let path = Path::new(path);
        let parents: Vec<&Path> = path.ancestors().skip(1).filter(|parent| *parent != Path::new("")).collect();
        let is_new = !own.contains_key(path);
        let fits = parents.iter().all(|parent| !matches!(own.get(*parent), Some(Means::File(_) | Means::Gone)))
            && is_new
            && match what {
                Means::Directory | Means::File(_) => true,
                // Of what is not there nothing can be hidden.
                Means::Gone => lower.contains_key(path),
                Means::Opaque => !lower.is_empty(),
            };
        if !fits {
            continue;
        }
        for parent in parents.iter().rev() {
            if !own.contains_key(*parent) {
                own.insert(parent.to_path_buf(), Means::Directory);
                put(&mut archive, &format!("{}/", parent.display()), b'5', b"");
                below.insert(parent.to_path_buf(), None);
            }
        }
        let name = path.display();
        match what {
            Means::File(byte) => {
                put(&mut archive, &name.to_string(), b'0', &[*byte]);
                below.retain(|other, _| !other.starts_with(path));
                below.insert(path.to_owned(), Some(*byte));
            }
            Means::Directory | Means::Opaque => {
                put(&mut archive, &format!("{name}/"), b'5', b"");
                below.insert(path.to_owned(), None);
            }
            Means::Gone => {
                let parent = path
                    .parent()
                    .expect("none is the root")
                    .join(format!(".wh.{}", path.file_name().expect("it has one").display()));
                put(&mut archive, &parent.display().to_string(), b'0', b"");
                below.retain(|other, _| !other.starts_with(path));
            }
        }
        if *what == Means::Opaque {
            put(&mut archive, &format!("{name}/.wh..wh..opq"), b'0', b"");
            below.retain(|other, _| other == path || !other.starts_with(path));
        }
        own.insert(
            path.to_owned(),
            match what {
                Means::File(byte) => Means::File(*byte),
                Means::Gone => Means::Gone,
                Means::Directory | Means::Opaque => Means::Directory,
            },
        );
    }
    archive.extend([0; 1024]);
    set_sums_right(&mut archive);
    archive
}

/// An entry of an archive, POSIX.1-1988; its sum is still to be set.
fn put(archive: &mut Vec<u8>, name: &str, kind: u8, content: &[u8]) {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(if kind == b'5' { b"0000755\0" } else { b"0000644\0" });
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    archive.extend(header);
    if !content.is_empty() {
        archive.extend(content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
}

/// The tree of a package of these layers, the lowest first.
fn merged(store: &Store, archives: &[Vec<u8>]) -> Result<LayerLock, UnpackError> {
    let stored = |tar: &Vec<u8>| (store.put(tar, media_type::LAYER_TAR).expect("it can be written"), Digest::of(tar));
    let (layers, diff_ids): (Vec<_>, Vec<_>) = archives.iter().map(stored).unzip();
    let manifest = json!({"schemaVersion": 1, "name": "a", "version": "1", "entrypoint": {"args": ["x"]}});
    let package = Package {
        manifest: Manifest::parse(manifest.to_string().as_bytes()).expect("it is one"),
        origin: PackageOrigin::Smcp,
        config: ImageConfig::default(),
        digest: Digest::of(""),
        manifest_digest: Digest::of(""),
        layers: layers.iter().cloned().zip(diff_ids.iter().cloned()).collect(),
    };
    let config = store.put(b"{}", media_type::OCI_CONFIG).expect("it can be written");
    let descriptor = Descriptor::new(media_type::OCI_MANIFEST, Digest::of(""), 0);
    let resolved = Resolved {
        reference: "a".into(),
        name: "a".into(),
        descriptor: descriptor.clone(),
        manifest: ImageManifest::new(config.clone(), layers.clone()),
        manifest_descriptor: descriptor,
        freshness: Freshness::Fetched,
        stated: None,
        source: Origin::Layout(store.root().to_owned()),
        way: Way::default(),
    };
    let config = store.blob(&config).expect("it was written").expect("it was written");
    let image = Image { resolved, config, layers, diff_ids };
    prepare(&package, &image, store, &Network::new("localhost", Mode::Refresh), &|_| (), &in_this_process)
}

fn list(root: &Path, below: &Path, found: &mut Tree) {
    for entry in fs::read_dir(root.join(below)).expect("its owner can list it") {
        let path = below.join(entry.expect("nothing removes it").file_name());
        let whole = root.join(&path);
        let about = fs::symlink_metadata(&whole).expect("it is there");
        if about.is_dir() {
            found.insert(path.clone(), None);
            list(root, &path, found);
        } else {
            let content = fs::read(&whole).expect("its owner can read it");
            assert_eq!(content.len(), 1, "{path:?}");
            found.insert(path, content.first().copied());
        }
    }
}

/// A bundle of sigstore's by whoever wrote it: it says one thing at most, and nothing where nobody's word counts.
pub fn bundle(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let key = SigningKey::from_pem(KEY.as_bytes(), None).expect("it is one");
    let trusted = [TrustedKey { file: "k".into(), key: key.public() }];
    let now = "2026-06-01T00:00:00Z".parse().expect("it is a time");
    let said = |signers: &Signers<'_>| {
        let item = Item { form: Form::Bundle, text: text.into() };
        let outcome = verify(&[Digest::of("")], &[item], signers, now, Listing::Complete);
        let evidence = &outcome.evidence;
        let words = words_of(&outcome);
        (words, words + evidence.rejected.len())
    };
    assert!(said(&Signers { keys: &trusted, ..Signers::default() }).1 <= 1);
    assert_eq!(said(&Signers::default()).0, 0, "nobody's word counts");
}
