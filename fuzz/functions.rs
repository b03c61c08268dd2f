//! What is fuzzed: each function takes any bytes, and panics where something is wrong with what came of them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use bundle::attest::{
    Bundle, Envelope, Form, IN_TOTO, Item, PublicKey, Signers, SigningKey, SimpleSigning, TrustedKey, verify,
};
use bundle::policy::{Pattern, Policy, Section, Source, Sourced, Tools};
use bundle::{Below, ImageConfig, Listing, Manifest, Order, extract};
use distribution::{Digest, Document, Reference, Rules, media_type};
use runtime::egress::Name;
use runtime::egress::dns::{self, Verdict};
use runtime::egress::hello::{self, Look};
use smcp::handshake::{Channels, Due, Duties, Handshake, Last, Output, Passed};

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
        let words = [
            evidence.signatures.len(),
            evidence.certifications.len(),
            evidence.revocations.len(),
            outcome.others.len(),
        ];
        let words: usize = words.iter().sum();
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

/// Files of AI clients: whatever smcp makes of one can be read again, and holds servers in the same language.
pub fn clients(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for (client, after) in smcp::clients::every_change(text) {
        assert!(client.dialect.read(&after).is_ok(), "{}: {text:?} became {after:?}", client.id);
    }
}
