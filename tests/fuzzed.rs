//! The fuzz targets on seeds and on changes of them: a smoke run of what `fuzz/run` does for as long as one likes. The changes are
//! the same in each run; with `SMCP_SEED=N` others.

#[path = "../fuzz/functions.rs"]
mod functions;

use std::fs;
use std::path::Path;

use crate::violent_ends::Dice;

/// What fuzzing has found so far, once each; then seeds and changes of them, by pieces that the target looks for.
fn replay(name: &str, target: fn(&[u8]), seeds: &[Vec<u8>], pieces: &[&[u8]], changes: usize) {
    kept(name).iter().for_each(|bytes| target(bytes));
    let seed = std::env::var("SMCP_SEED").ok().map_or(1, |text| text.parse().expect("SMCP_SEED is a number"));
    let mut dice = Dice(seed);
    for bytes in seeds {
        target(bytes);
        for _ in 0..changes {
            let mut changed = bytes.clone();
            for _ in 0..=dice.below(4) {
                change(&mut changed, &mut dice, seeds, pieces);
            }
            target(&changed);
        }
    }
}

/// The corpus that `fuzz/run --keep` has made.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fuzz/kept/{name}.tar.gz"));
    let file = fs::File::open(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().expect("it is an archive").map(|entry| entry.expect("it is whole"));
    let files = entries.filter(|entry| entry.header().entry_type().is_file());
    let read = |mut entry: tar::Entry<'_, _>| {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).expect("it is whole");
        bytes
    };
    let found: Vec<_> = files.map(read).collect();
    assert!(found.len() > 10, "{name}: {} inputs", found.len());
    found
}

fn change(bytes: &mut Vec<u8>, dice: &mut Dice, seeds: &[Vec<u8>], pieces: &[&[u8]]) {
    let at = dice.below(bytes.len() + 1);
    match dice.below(6) {
        0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        1 if at < bytes.len() => bytes[at] = dice.below(256) as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.splice(at..at, pieces[dice.below(pieces.len())].iter().copied())),
        4 => {
            let end = (at + 1 + dice.below(64)).min(bytes.len());
            drop(bytes.drain(at..end));
        }
        _ => {
            let other = &seeds[dice.below(seeds.len())];
            bytes.truncate(at);
            bytes.extend_from_slice(&other[dice.below(other.len())..]);
        }
    }
}

#[test]
fn references() {
    let seeds = [
        "acme/hello",
        "ghcr.io:443/acme/hello/deep:v1.2",
        "acme/hello@1.2.3-rc.1",
        "localhost:5000/a/b@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "npm:@modelcontextprotocol/server-filesystem@2025.1.1",
        "pypi:mcp-server-time==1.0",
        "mcp:io.github.acme/hello@1.0.0",
        "oci-layout:/home/me/mcp:files",
        "./dir/with spaces",
        "./file.mcpb",
    ];
    let pieces: [&[u8]; 14] = [
        b":",
        b"@",
        b"/",
        b"..",
        b"//",
        b"sha256:",
        b"[::1]",
        b"%2e",
        b"\0",
        b"\n",
        b" ",
        "é".as_bytes(),
        b"npm:",
        b"==",
    ];
    replay("reference", functions::reference, &seeds.map(|text| text.as_bytes().to_vec()), &pieces, 2000);
}

#[test]
fn manifests() {
    let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let descriptor = |kind: &str| format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":3}}"#);
    let seeds = [
        r#"{"schemaVersion":1,"name":"acme/hello","version":"1.2.3","entrypoint":{"args":["node","/app/i.js"],"workdir":"/app"},
            "args":[{"name":"root","type":"path","mount":"ws","required":true}],"env":[{"name":"LOG","default":"info"}],
            "permissions":{"network":{"outbound":[{"host":"api.acme.example","ports":[443]}]},
            "filesystem":[{"id":"ws","access":"rw","target":"/work","from":"user"}],"subprocess":{"allow":["/usr/bin/git"]}},
            "limits":{"memory":"256M","cpuMillis":1000,"pids":256,"nofile":1024}}"#
            .to_owned(),
        format!(
            r#"{{"schemaVersion":2,"config":{},"layers":[{}],"annotations":{{"a":"b"}}}}"#,
            descriptor("application/vnd.oci.image.config.v1+json"),
            descriptor("application/vnd.oci.image.layer.v1.tar+zstd")
        ),
        format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, descriptor("application/vnd.oci.image.manifest.v1+json")),
        format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Env":["A=b"],"Entrypoint":["/x"],"Labels":{{"l":"v"}}}},
                "rootfs":{{"type":"layers","diff_ids":["{digest}"]}},"history":[{{"created":"2026-01-01T00:00:00Z"}}]}}"#
        ),
    ];
    let pieces: [&[u8]; 14] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b",",
        b":",
        b"null",
        b"-1",
        b"1e400",
        b"\\u0000",
        b"\"urls\":[\"http://x\"],",
        b"\"*\"",
        b"\"permissions\":{},",
    ];
    replay("manifest", functions::manifest, &seeds.map(String::into_bytes), &pieces, 3000);
}

#[test]
fn policies() {
    let seeds = [
        "min_cert_level: 2\ncert_level_mode: warn\nallowed_origins: [official, verified]\nwarning_threshold: 70\n",
        "signatures:\n  - {names: [\"acme/*\"], keys: [~/a.pub]}\ncertifiers:\n  - {key: /hub.pub, predicates: [revocation], names: [\"*\"], max_level: 1}\n",
        "ceilings:\n  network: {allow: [\"*.acme.example:443\"], deny: [x.test]}\n  filesystem: {allow: [{path: ~/p, access: rw}], deny: [~/.ssh]}\n",
        "ceilings: {limits: {memory: 2G, cpu: 4000, timeout: 7d}, env: {deny: [A*]}}\ntools: {pin: block}\nnew_permissions: ask\n",
    ];
    let pieces: [&[u8]; 16] = [
        b": ",
        b"- ",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\n",
        b"  ",
        b"&a ",
        b"*a",
        b"<<: ",
        b"~",
        b"\"",
        b"!!str ",
        b"---\n",
        b"min_cert_level: 0\n",
    ];
    replay("policy", functions::policy, &seeds.map(|text| text.as_bytes().to_vec()), &pieces, 1500);
}

#[test]
fn archives() {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o4755);
    let mut add = |name: &str, kind: tar::EntryType, link: &str, bytes: &[u8]| {
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        match link {
            "" => tar.append_data(&mut header, name, bytes).expect("memory can be written"),
            link => tar.append_link(&mut header, name, link).expect("memory can be written"),
        }
    };
    add("d/", tar::EntryType::Directory, "", b"");
    add("d/f", tar::EntryType::Regular, "", b"content");
    add("l", tar::EntryType::Symlink, "../beside", b"");
    add("h", tar::EntryType::Link, "d/f", b"");
    add(".wh.gone", tar::EntryType::Regular, "", b"");
    add(&format!("long/{}", "n".repeat(150)), tar::EntryType::Regular, "", b"long");
    let plain = tar.into_inner().expect("memory can be written");
    let gzip = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &plain).expect("memory can be written");
        encoder.finish().expect("memory can be written")
    };
    let zstd = zstd::encode_all(&*plain, 3).expect("memory can be written");
    let with = |how: u8, bytes: &[u8]| [&[how], bytes].concat();
    // Divided by three leaves the form: plain, gzip, zstd. The bits from 0x20 on are in fuzz/functions.rs.
    let plain = [0x00, 0x21, 0x42, 0x60, 0x81, 0xa2, 0xe1].map(|how| with(how, &plain));
    let seeds = [&plain[..], &[with(1, &gzip), with(2, &zstd)]].concat();
    let block = [0; 512];
    let pieces: [&[u8]; 8] =
        [b"../", b"/", b"\0", b"ustar\0", b"SCHILY.xattr.trusted.x=", b"\xff\xff\xff\xff", &block, b"00000000777"];
    replay("archive", functions::archive, &seeds, &pieces, 150);
}

#[test]
fn questions_to_the_resolver() {
    let question = |name: &str, kind: u8, more: &[u8]| {
        let mut message = vec![0, 0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(!more.is_empty())];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            message.push(label.len() as u8);
            message.extend_from_slice(label.as_bytes());
        }
        message.extend_from_slice(&[0, 0, kind, 0, 1]);
        message.extend_from_slice(more);
        message
    };
    // EDNS, RFC 6891: the root's name, type 41, 1,232 bytes, no flags, no options.
    let edns = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    let long = vec!["n".repeat(60); 4].join(".");
    let seeds = [
        question("granted.test", 1, &[]),
        question("granted.test", 28, &edns),
        question("0.1.18.30.in-addr.arpa", 12, &[]),
        question("_https.granted.test", 65, &edns),
        question(&long, 1, &[]),
        question("", 2, &edns),
    ];
    let pieces: [&[u8]; 8] = [b"\0", b"\xc0\x0c", b"\xc0\0", b"\x3f", &edns, b"\xff\xff", b"\x80", b"\0\x29"];
    replay("dns", functions::dns, &seeds, &pieces, 3000);
}

#[test]
fn what_clients_of_tls_say_first() {
    let hello = |name: &str| {
        let length = name.len() as u16;
        let mut extension = vec![0, 0];
        extension.extend_from_slice(&(length + 5).to_be_bytes());
        extension.extend_from_slice(&(length + 3).to_be_bytes());
        extension.push(0);
        extension.extend_from_slice(&length.to_be_bytes());
        extension.extend_from_slice(name.as_bytes());
        let extensions = if name.is_empty() { vec![0x0a, 0x0a, 0, 0] } else { extension };
        // Version, random, session, one cipher, no compression, RFC 8446 4.1.2.
        let mut body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
        body.extend_from_slice(&(extensions.len() as u16).to_be_bytes());
        body.extend_from_slice(&extensions);
        let message = [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
        [&[22, 3, 1][..], &(message.len() as u16).to_be_bytes(), &message].concat()
    };
    let seeds = [hello("granted.test"), hello(""), b"SSH-2.0-client\r\n".to_vec(), b"GET / HTTP/1.1\r\n\r\n".to_vec()];
    let pieces: [&[u8]; 7] =
        [b"\x16\x03\x01\0\x05", b"\0", b"\xff", b"\0\0", b"granted.test", b"\x15\x03\x01\0\x02", b"\x01"];
    replay("hello", functions::hello, &seeds, &pieces, 3000);
}

#[test]
fn sessions_of_the_relay() {
    let parts: [&str; 10] = [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"x","capabilities":{"logging":{}},"instructions":"own \u00fc"}}"#,
        r#"{"jsonrpc":"2.0","id":"1","method":"server/discover"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":[],"\u0069nstructions":null}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "plain text",
        r#"[{"id":2,"method":"tools/list"},{"id":3,"method":"tools/call","params":{"name":"b"}}]"#,
        r#"[{"id":2,"result":{"tools":[{"name":"a","description":"d"},{"name":"b1"},{"name":"b2"}]}}]"#,
        r#"{"id":3,"method":"tools/call","params":{"name":"t"}}"#,
        r#"{"id":3,"result":{"content":[]},"result":{"content":[{"type":"text"}]}}"#,
    ];
    let session = parts.map(|part| format!("{part}\n")).join("\0");
    let seeds = [0_u8, 0x1f, 0x5f, 0x39, 0x7f, 0x96, 0xff].map(|how| [&[how], session.as_bytes()].concat());
    let pieces: [&[u8]; 16] = [
        b"\0",
        b"\n",
        b"\r\n",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b",",
        b"\\",
        b"null",
        b"\"id\":0,",
        b"\"result\":{},",
        b"\"instructions\":\"x\",",
        b"\\u0072",
        b"[INFO]",
    ];
    replay("handshake", functions::handshake, &seeds, &pieces, 3000);
}

const DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn what_lies_beside_packages() {
    let envelope =
        r#"{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"sig":"AAAA","keyid":""}]}"#;
    let bundle = |material: &str| {
        format!(
            r#"{{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{material},"dsseEnvelope":{envelope}}}"#
        )
    };
    let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let seeds = [
        envelope.to_owned(),
        bundle(r#"{"publicKey":{"hint":"x"},"tlogEntries":[]}"#),
        bundle(r#"{"certificate":{"rawBytes":"AAAA"}}"#),
        format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"r.test/a/b"}},"image":{{"docker-manifest-digest":"sha256:{DIGEST}"}},
                "type":"cosign container image signature"}},"optional":{{"a":1}}}}"#
        ),
        pem.to_owned(),
    ];
    let pieces: [&[u8]; 12] = [
        b"{",
        b"}",
        b"\"",
        b",",
        b"null",
        b"[]",
        b"=",
        b"-_",
        b"\"dsseEnvelope\":{},",
        b"\"messageSignature\":{},",
        b"-----BEGIN ",
        b"-----",
    ];
    replay("envelope", functions::envelope, &seeds.map(String::into_bytes), &pieces, 1500);
}

#[test]
fn what_trusted_keys_sign() {
    let statement = |kind: &str, predicate: &str| {
        format!(
            r#"{{"_type":"https://in-toto.io/Statement/v1","subject":[{{"name":"x","digest":{{"sha256":"{DIGEST}"}}}}],
                "predicateType":"{kind}","predicate":{predicate}}}"#
        )
    };
    let seeds = [
        statement(
            "https://mcp-hub.info/attestation/certification/v1",
            r#"{"level":2,"score":85,"origin":"verified","scanner":{"name":"s","version":"1"},"findings":{"critical":0,"high":0,
                "medium":1,"low":4},"issuedAt":"2026-01-01T00:00:00Z","expiresAt":"2027-01-01T00:00:00Z"}"#,
        ),
        statement(
            "https://mcp-hub.info/attestation/revocation/v1",
            r#"{"status":"revoked","reason":"r","issuedAt":"2026-01-01T00:00:00Z"}"#,
        ),
        statement("https://sigstore.dev/cosign/sign/v1", "{}"),
        statement("https://slsa.dev/provenance/v1", "[1]"),
    ];
    let pieces: [&[u8]; 12] = [
        b"{",
        b"}",
        b"\"",
        b",",
        b"null",
        b"-1",
        b"4",
        b"1e400",
        b"\"level\":3,",
        b"2026-05-01T00:00:00Z",
        b"-9999999-01-01T00:00:00Z",
        b"\\ud800",
    ];
    replay("attestation", functions::attestation, &seeds.map(String::into_bytes), &pieces, 1500);
}

#[test]
fn files_of_clients() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/adopt/before");
    let seeds: Vec<Vec<u8>> = [
        ".cursor/mcp.json",
        ".config/Code/User/mcp.json",
        ".codex/config.toml",
        ".continue/config.yaml",
        ".continue/mcpServers/hello.yaml",
        ".config/goose/config.yaml",
        ".config/opencode/opencode.json",
        ".claude.json",
    ]
    .iter()
    .map(|name| fs::read(root.join(name)).expect("the fixtures are there"))
    .collect();
    let pieces: [&[u8]; 18] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b"'",
        b",",
        b":",
        b"\n",
        b"\r\n",
        b"# x",
        b"// x, -",
        b"/* , */",
        b"- ",
        b"\"\"\"",
        b"&a ",
        "é\u{feff}\u{2028}".as_bytes(),
        b"\\u00e9",
    ];
    replay("clients", functions::clients, &seeds, &pieces, 400);
}

const ASKING: &str = r#"{"schemaVersion":1,"name":"acme/hello","version":"1.2.3","entrypoint":{"args":["node","/app/i.js"]},
    "env":[{"name":"LOG","default":"info"},{"name":"KEY","required":true}],"permissions":{"network":{"outbound":["api.acme.example:443"]},
    "filesystem":[{"id":"ws","access":"rw","target":"/work","from":"user"}],"subprocess":{"allow":["/usr/bin/git"]}}}"#;

#[test]
fn labels() {
    let pieces: [&[u8]; 9] =
        [b"{", b"}", b"\"", b",", b"\\u0000", "\u{2028}".as_bytes(), b"\"*\"", b"null", b"\"access\":\"ro\""];
    replay("label", functions::label, &[ASKING.into()], &pieces, 3000);
}

#[test]
fn configurations() {
    let seeds = [
        "registry_url: \"https://r.test\"\ncache_max_size: 2G\naudit_max_size: 64M\nlog_level: info\nrelay: direct\n",
        "timeout: 24h\nmax_memory: 512M\nmax_cpu: 1.5\nmax_pids: 256\npolicy:\n  min_cert_level: 1\n  unscored: refuse\n",
        "registries:\n  r.test:443: {mirror: \"https://m.test\", insecure: false, token_env: T}\nallow_scripts: [esbuild]\n",
        "audit_enabled: false\n",
    ];
    let pieces: [&[u8]; 14] = [
        b": ",
        b"- ",
        b"{",
        b"}",
        b"\n",
        b"  ",
        b"&a ",
        b"*a",
        b"~",
        b"\"",
        b"!!str ",
        b"---\n",
        b"-1",
        b"policy:\n  ",
    ];
    replay("configuration", functions::configuration, &seeds.map(Into::into), &pieces, 1500);
}

#[test]
fn lines_of_json() {
    let seeds = [
        r#"{"jsonrpc":"2.0","id":0,"result":{"a":[1,-2.5e3,true,null,{"\u0062":"\ud83d\ude00\n"}],"a":{}}}"#,
        r#" [ {"id":2,"method":"tools/list"} , {} ]"#,
        "[INFO] ready",
        "{'a': 1}",
    ];
    let pieces: [&[u8]; 14] =
        [b"{", b"}", b"[", b"]", b"\"", b",", b":", b"\\", b"\\u0022", b"\\\\", b" ", b"\t", b"1e9", b"\xff"];
    replay("line", functions::line, &seeds.map(Into::into), &pieces, 5000);
}

/// Entries are two bytes: a file, a directory, what is gone, what is opaque; and one of nine paths.
#[test]
fn layers_with_whiteouts() {
    let seeds: [&[u8]; 5] = [
        &[4, 2, 4, 3, 5, 4, 0, 6, 2],
        &[4, 6, 4, 7, 0, 7, 2, 0, 4, 2],
        &[4, 1, 0, 4, 5, 0, 6, 1, 4, 3, 0, 3, 0],
        &[4, 2, 0, 7, 9, 4, 6, 0, 6, 9],
        &[4, 8, 4, 3, 0, 4, 1, 0, 5, 1, 4, 4],
    ];
    let pieces: [&[u8]; 6] = [b"\0", &[4, 2], &[5, 1], &[6, 2], &[7, 9], &[6, 6]];
    replay("whiteouts", functions::whiteouts, &seeds.map(<[u8]>::to_vec), &pieces, 20);
}

#[test]
fn bundles() {
    let keyless = include_bytes!("fixtures/signing/keyless.sigstore.json").to_vec();
    let key = format!(
        r#"{{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{{"publicKey":{{"hint":"x"}}}},
            "messageSignature":{{"messageDigest":{{"algorithm":"SHA2_256","digest":"{DIGEST}"}},"signature":"AAAA"}}}}"#
    );
    let pieces: [&[u8]; 8] = [b"{", b"}", b"\"", b",", b"null", b"[]", b"\"dsseEnvelope\":{},", b"AAAA"];
    replay("bundle", functions::bundle, &[keyless, key.into()], &pieces, 1000);
}

/// Each function is a target of its own.
#[test]
fn every_function_is_a_target() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let functions = fs::read_to_string(fuzz.join("functions.rs")).expect("it was compiled in");
    let named: Vec<_> = functions.lines().filter_map(|line| line.strip_prefix("pub fn ")?.split('(').next()).collect();
    assert_eq!(
        named,
        [
            "reference",
            "manifest",
            "policy",
            "archive",
            "dns",
            "hello",
            "handshake",
            "envelope",
            "attestation",
            "clients",
            "label",
            "configuration",
            "line",
            "whiteouts",
            "bundle"
        ]
    );
    for name in named {
        let target = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).expect("a target");
        assert!(target.contains(&format!("functions::{name}(")), "{name}");
    }
}
