//! What the existing hub has, as a package: its two dialects of a manifest are mapped onto ours, its source tree becomes a
//! layer at `/app`. And the way back, for publishing there.
//!
//! What the hub's manifest asks for stays a request. Its limit of time is left out: it ended sessions after minutes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use distribution::{
    Blob, Delivered, Descriptor, HUB_BUNDLE, HUB_MANIFEST, Hasher, ImageManifest, Offered, Platform, Resolved, Rules,
    Staging, Store, Verified, json, media_type,
};
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::config::{Execution, ImageConfig, RootFs};
use crate::evidence::{Findings, HubWord, PackageClass};
use crate::manifest::{LABEL, Manifest};
use crate::outbound::Outbound;
use crate::pack::{LayerBuilder, PackedLayer};
use crate::unpack::{Below, Extractor, Order, unpack};

const APP: &str = "/app";
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MAX_MANIFEST: usize = 10 << 20;
/// As the caps of a layer: decompressed bytes, and for each compressed one once [`FREE`] are out.
const MAX_BYTES: u64 = 4 << 30;
const MAX_RATIO: u64 = 200;
const FREE: u64 = 64 << 20;
/// Programs of the user's machine that would fetch or build at each start, or that nobody can mount yet.
const NOT_PROVIDED: [&str; 8] = ["ruby", "java", "deno", "bun", "npx", "uvx", "uv", "sh"];

type Result<T, E = String> = std::result::Result<T, E>;

/// Makes an image of what a hub delivered, in the store.
///
/// # Errors
/// Where manifest, bundle and request do not fit together, or it cannot be run by smcp.
pub fn from_hub(delivered: &Delivered, store: &Store, by: Extractor<'_>) -> Result<Descriptor> {
    let written: Value =
        json::strict(&delivered.manifest, MAX_MANIFEST).map_err(|why| format!("its manifest: {why}"))?;
    agrees(&written, delivered)?;
    let manifest = manifest(&written, delivered)?;
    let label = manifest.to_label();
    // What is built here is judged as if somebody else had written it.
    let manifest = Manifest::parse(label.as_bytes()).map_err(|why| format!("its manifest: {why}"))?;
    let layer = layer(&delivered.bundle, store, by)?;
    let certification = certification(&written["certification"]);
    image(&manifest, label, certification, &layer, delivered, store)
}

/// What the hub states of a package of its own: level, origin and status as it said them when it was asked, score and
/// findings from its manifest. None of what no hub delivered: anybody can annotate an image.
pub fn hub_word(resolved: &Resolved) -> Option<HubWord> {
    let stated = resolved.stated.as_ref()?;
    let written = resolved.manifest.annotations.get(HUB_CERTIFICATION);
    let written: Value = written.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let found = |key: &str| written["findings"][key].as_u64().map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let origin = stated.origin.as_deref().and_then(|origin| PackageClass::of_word(origin).ok());
    Some(HubWord {
        level: stated.level,
        score: written["score"].as_u64().and_then(|score| u8::try_from(score).ok()).filter(|score| *score <= 100),
        origin,
        findings: Findings {
            critical: found("critical"),
            high: found("high"),
            medium: found("medium"),
            low: found("low"),
        },
        deprecated: stated.deprecated,
    })
}

/// Score and findings of the hub's manifest, as an annotation keeps them: whole numbers, rounded down.
fn certification(written: &Value) -> Value {
    let whole = |value: &Value| value.as_f64().filter(|n| *n >= 0.0).map(|n| n.floor() as u64);
    let findings = ["critical", "high", "medium", "low"];
    let findings: serde_json::Map<_, _> =
        findings.map(|key| (key.to_owned(), json!(whole(&written["findings"][key])))).into_iter().collect();
    json!({"score": whole(&written["score"]), "findings": findings})
}

/// The annotation of an image that holds [`certification`].
const HUB_CERTIFICATION: &str = "info.mcp-hub.smcp.hub.certification";

/// The bundle of a package in the store: the files of its topmost layer, which is the application's.
///
/// # Errors
/// Where it is no package of smcp, or its layer cannot be read.
pub fn to_hub(package: &Descriptor, store: &Store) -> Result<Offered> {
    let text = |why: &dyn std::fmt::Display| why.to_string();
    let read = |descriptor: &Descriptor| {
        let blob = store.blob(descriptor).map_err(|why| text(&why))?;
        blob.ok_or_else(|| format!("{} is not in the store", descriptor.digest))
    };
    let bytes = |descriptor: &Descriptor| read(descriptor)?.bytes().map_err(|why| text(&why));
    let image = ImageManifest::parse(&bytes(package)?).map_err(|why| text(&why))?;
    let config = ImageConfig::parse(&bytes(&image.config)?).map_err(|why| text(&why))?;
    let label = config.config.labels.get(LABEL).ok_or("a plain image, without the manifest of a package")?;
    let version = Manifest::parse(label.as_bytes()).map_err(|why| text(&why))?.version;
    let layer = read(image.layers.last().ok_or("it has no layer")?)?;
    let writer = store.writer().map_err(|why| text(&why))?;
    let mut gzip = GzEncoder::new(writer, Compression::default());
    let copied = match layer.descriptor().media_type.as_str() {
        media_type::LAYER_TAR_ZSTD => zstd::stream::copy_decode(layer.reader(), &mut gzip),
        media_type::LAYER_TAR_GZIP => {
            io::copy(&mut MultiGzDecoder::new(io::BufReader::new(layer.reader())), &mut gzip).map(drop)
        }
        media_type::LAYER_TAR => io::copy(&mut layer.reader(), &mut gzip).map(drop),
        other => return Err(format!("a layer of type {other:?}")),
    };
    copied.map_err(|why| text(&why))?;
    let bundle = gzip.finish().map_err(|why| text(&why))?;
    let bundle = bundle.finish(media_type::LAYER_TAR_GZIP).map_err(|why| text(&why))?;
    Ok(Offered { version, bundle: read(&bundle)? })
}

/// Compares manifest, bundle and request.
fn agrees(written: &Value, delivered: &Delivered) -> Result<()> {
    let package = &written["package"];
    let same = |key: &str, want: &str| match package[key].as_str() {
        Some(is) if is == want => Ok(()),
        other => Err(format!("its manifest's package.{key} is {other:?}, and {want:?} was asked for")),
    };
    same("id", &delivered.package)?;
    same("version", &delivered.version)?;
    match (package["git_sha"].as_str(), &delivered.git_sha) {
        (Some(is), Some(want)) if is != want => return Err(format!("its manifest is of commit {is}, not {want}")),
        _ => {}
    }
    let (digest, size) = (&written["bundle"]["digest"], &written["bundle"]["size_bytes"]);
    let bundle = delivered.bundle.descriptor();
    if digest.as_str().is_some_and(|digest| digest != bundle.digest.as_str()) {
        return Err(format!("its manifest is of another bundle, {digest}"));
    }
    match size.as_u64() {
        Some(size) if size != bundle.size => {
            Err(format!("its manifest's bundle has {size} bytes, not {}", bundle.size))
        }
        _ => Ok(()),
    }
}

/// Our manifest, as the value that a label holds.
fn manifest(written: &Value, delivered: &Delivered) -> Result<Manifest> {
    let started = if written["runtime"].is_object() { of_the_hub(written)? } else { of_the_client(written)? };
    let Started { command, workdir, env, outbound, read, write, programs, limits } = started;
    let (args, interpreter) = program(command)?;
    let mut value = json!({
        "schemaVersion": 1,
        "name": delivered.package,
        "version": delivered.version,
        "mcp": {"transport": {"type": "stdio"}},
        "entrypoint": {"args": args, "workdir": workdir},
        "env": env,
        "permissions": {
            "network": {"outbound": outbound},
            "filesystem": filesystem(read, write)?,
            "subprocess": {"allow": absolute(programs, "programs")?},
        },
        "limits": limits,
        "source": {"type": "hub", "ref": format!("{}@{}", delivered.package, delivered.version),
            "integrity": delivered.bundle.descriptor().digest},
    });
    if let Some(text) = written["package"]["description"].as_str() {
        value["description"] = json!(text);
    }
    if let Some(interpreter) = interpreter {
        value["hostRuntime"] = json!({"interpreter": interpreter});
    }
    Manifest::from_value(&value).map_err(|why| format!("its manifest: {why}"))
}

/// What both dialects say, before it is judged.
struct Started {
    command: Vec<String>,
    workdir: PathBuf,
    env: Vec<Value>,
    outbound: Vec<Value>,
    read: Vec<String>,
    write: Vec<String>,
    programs: Vec<String>,
    limits: Value,
}

/// The dialect with `runtime`.
fn of_the_hub(written: &Value) -> Result<Started> {
    let entry = &written["entrypoint"];
    let command = [texts(&entry["command"], "entrypoint.command")?, texts(&entry["args"], "entrypoint.args")?].concat();
    let workdir = entry["workdir"].as_str().unwrap_or_default();
    let permissions = &written["permissions"];
    let files = &permissions["filesystem"];
    let set = entry["env"].as_object().into_iter().flatten();
    let mut env: Vec<Value> =
        set.map(|(name, value)| json!({"name": name, "default": value.as_str().unwrap_or_default()})).collect();
    add_names(&mut env, &texts(&permissions["env_vars"], "permissions.env_vars")?);
    let resources = &written["resources"];
    let mut limits = json!({});
    if let Some(memory) = resources["memory_mb"].as_u64().filter(|memory| *memory > 0) {
        limits["memory"] = json!(format!("{memory}M"));
    }
    if let Some(cpu) = resources["cpu_millicores"].as_u64().filter(|cpu| *cpu > 0) {
        limits["cpuMillis"] = json!(cpu);
    }
    Ok(Started {
        command,
        workdir: below_app(workdir)?,
        env,
        outbound: outbound(&texts(&permissions["network"]["outbound"], "permissions.network.outbound")?)?,
        read: texts(&files["read"], "permissions.filesystem.read")?,
        write: texts(&files["write"], "permissions.filesystem.write")?,
        programs: texts(&files["execute"], "permissions.filesystem.execute")?,
        limits,
    })
}

/// The dialect with `entrypoints`.
fn of_the_client(written: &Value) -> Result<Started> {
    let transport = written["transport"]["type"].as_str().unwrap_or("stdio");
    if transport != "stdio" {
        return Err(format!("its transport is {transport:?}, and a package has stdio alone"));
    }
    let host = Platform::host();
    let other_name = match host.architecture.as_str() {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    let entries = written["entrypoints"].as_array().cloned().unwrap_or_default();
    let fits = |entry: &&Value| {
        let is = |key: &str, names: &[&str]| {
            entry[key].as_str().is_none_or(|value| value.is_empty() || names.contains(&value))
        };
        is("os", &[&host.os]) && is("arch", &[&host.architecture, other_name])
    };
    let entry = entries.iter().find(fits).ok_or_else(|| format!("it has no entry point for {host}"))?;
    let first = entry["command"].as_str().unwrap_or_default().to_owned();
    let command = [vec![first], texts(&entry["args"], "entrypoints.args")?].concat();
    let asked = &written["permissions_requested"];
    let mut env = Vec::new();
    add_names(&mut env, &texts(&asked["environment"], "permissions_requested.environment")?);
    let most = &written["limits_recommended"];
    let mut limits = json!({});
    if let Some(memory) = memory(&most["max_memory"])? {
        limits["memory"] = json!(format!("{memory}K"));
    }
    for (theirs, ours) in [("max_cpu", "cpuMillis"), ("max_pids", "pids"), ("max_fds", "nofile")] {
        if let Some(number) = most[theirs].as_u64().filter(|number| *number > 0) {
            limits[ours] = json!(number);
        }
    }
    Ok(Started {
        command,
        workdir: APP.into(),
        env,
        outbound: outbound(&texts(&asked["network"], "permissions_requested.network")?)?,
        read: texts(&asked["filesystem_read"], "permissions_requested.filesystem_read")?,
        write: texts(&asked["filesystem"], "permissions_requested.filesystem")?,
        // A word for all programs is no request for one: a flag of the user's grants it.
        programs: Vec::new(),
        limits,
    })
}

/// The command as it is started in the cage, and the interpreter of the machine that it needs.
fn program(command: Vec<String>) -> Result<(Vec<String>, Option<&'static str>)> {
    let mut words = command.into_iter();
    let first = words.next().filter(|first| !first.is_empty()).ok_or("it has no command")?;
    let interpreter = match first.as_str() {
        "node" => Some("node"),
        "python" | "python3" => Some("python3"),
        other if NOT_PROVIDED.contains(&other) => {
            return Err(format!("it is started by {other} of the user's machine, which smcp does not provide"));
        }
        _ => None,
    };
    let program = match interpreter {
        Some(name) => name.to_owned(),
        None => below_app(&first)?.to_str().ok_or("its command is no text")?.to_owned(),
    };
    Ok(([program].into_iter().chain(words).collect(), interpreter))
}

/// A path of the bundle, in the cage.
fn below_app(path: &str) -> Result<PathBuf> {
    let relative = path.strip_prefix(APP).map_or(path, |rest| rest.trim_start_matches('/'));
    let plain =
        |part: std::path::Component| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir);
    let path_of = Path::new(relative);
    if !path_of.components().all(plain) || relative.contains('\0') {
        return Err(format!("{path:?} is no path in its bundle"));
    }
    let parts = path_of.components().filter(|part| matches!(part, std::path::Component::Normal(_)));
    Ok(Path::new(APP).join(parts.collect::<PathBuf>()))
}

/// A list of texts; none where it is missing. A star is a request for everything.
fn texts(value: &Value, key: &str) -> Result<Vec<String>> {
    let wrong = || format!("its manifest's {key} is no list of texts");
    let list = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        _ => return Err(wrong()),
    };
    let text = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(wrong);
    let found = list.iter().map(text).collect::<Result<Vec<_>>>()?;
    let asks = key.starts_with("permissions");
    match found.iter().any(|text| asks && matches!(text.as_str(), "*" | "/" | "**" | "/**")) {
        true => Err(format!("its manifest's {key} asks for everything")),
        false => Ok(found),
    }
}

fn add_names(env: &mut Vec<Value>, names: &[String]) {
    for name in names {
        if !env.iter().any(|known| known["name"] == *name) {
            env.push(json!({"name": name}));
        }
    }
}

fn outbound(list: &[String]) -> Result<Vec<Value>> {
    let mut found = BTreeMap::new();
    for text in list {
        let destination: Outbound = text.parse().map_err(|why: crate::OutboundError| why.to_string())?;
        let host = text.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit() || b == b','));
        let host = host.map_or(text.as_str(), |(host, _)| host);
        found.entry(host.to_owned()).or_insert_with(Vec::new).extend(destination.ports);
    }
    Ok(found.into_iter().map(|(host, ports)| json!({"host": host, "ports": ports})).collect())
}

/// Requests for absolute paths. What is relative to nothing cannot be asked for: the user grants it by a flag.
fn filesystem(read: Vec<String>, write: Vec<String>) -> Result<Vec<Value>> {
    let mut requests = BTreeMap::new();
    for (list, access) in [(read, "ro"), (write, "rw")] {
        for path in absolute(list, "paths")? {
            requests.insert(path, access);
        }
    }
    let request = |(number, (path, access)): (usize, (String, &str))| json!({"id": format!("path-{number}"), "access": access, "target": path, "from": "user"});
    Ok(requests.into_iter().enumerate().map(request).collect())
}

fn absolute(list: Vec<String>, what: &str) -> Result<Vec<String>> {
    let (absolute, other): (Vec<_>, Vec<_>) = list.into_iter().partition(|path| path.starts_with('/'));
    if !other.is_empty() {
        tracing::debug!(?other, "{what} of the hub's manifest that are not absolute are not asked for");
    }
    let trimmed =
        absolute.into_iter().map(|path| if path.len() > 1 { path.trim_end_matches('/').to_owned() } else { path });
    Ok(trimmed.collect())
}

/// KiB of `512MB`, `512M`, `1Gi`, `1GB` or a number of bytes.
fn memory(value: &Value) -> Result<Option<u64>> {
    let bytes = match value {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            let factor = match &text[digits.len()..] {
                "" | "B" => Some(1),
                "K" | "KB" | "Ki" | "KiB" => Some(1 << 10),
                "M" | "MB" | "Mi" | "MiB" => Some(1 << 20),
                "G" | "GB" | "Gi" | "GiB" => Some(1u64 << 30),
                _ => None,
            };
            digits.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor))
        }
        _ => None,
    };
    match bytes {
        Some(0) => Ok(None),
        Some(bytes) => Ok(Some(bytes.div_ceil(1 << 10))),
        None => Err(format!("its manifest's limits_recommended.max_memory {value} is no size")),
    }
}

/// The bundle's files, without the one directory that they lie in, at `/app`.
fn layer(bundle: &Verified<Blob>, store: &Store, by: Extractor<'_>) -> Result<PackedLayer> {
    let text = |why: &dyn std::fmt::Display| why.to_string();
    let content = content_digest(bundle).map_err(|why| format!("its bundle: {why}"))?;
    let staged = store.stage_layer(&content).map_err(|why| text(&why))?;
    let dir = match &staged {
        Staging::Present(dir) => dir.clone(),
        Staging::Empty(staged) => {
            let media_type = distribution::media_type::LAYER_TAR_GZIP.to_owned();
            let order = Order { media_type, rules: Rules::Strict, below: Below::Nothing };
            unpack(bundle, &content, staged, &order, by).map_err(|why| text(&why))?;
            staged.dir().to_owned()
        }
    };
    let top = top(&dir).map_err(|why| text(&why))?;
    let mut layer = LayerBuilder::new(0);
    layer.add_tree(&top, Path::new(APP), &|_| true).map_err(|why| text(&why))?;
    layer.finish(store).map_err(|why| text(&why))
}

/// The digest of the archive in a bundle, which no hub states.
fn content_digest(bundle: &Verified<Blob>) -> io::Result<distribution::Digest> {
    let size = bundle.descriptor().size;
    let most = MAX_BYTES.min(FREE.max(size.saturating_mul(MAX_RATIO)));
    let mut gzip = MultiGzDecoder::new(io::BufReader::new(bundle.reader())).take(most + 1);
    let mut hasher = Hasher::new();
    if io::copy(&mut gzip, &mut hasher)? > most {
        return Err(io::Error::other(format!("it decompresses to more than {most} bytes")));
    }
    hasher.flush()?;
    Ok(hasher.finish().0)
}

/// The directory that everything lies in, where there is just one.
fn top(dir: &Path) -> io::Result<PathBuf> {
    let mut entries = fs::read_dir(dir)?;
    match (entries.next().transpose()?, entries.next()) {
        (Some(only), None) if only.file_type()?.is_dir() => Ok(only.path()),
        _ => Ok(dir.into()),
    }
}

fn image(
    manifest: &Manifest,
    label: String,
    certification: Value,
    layer: &PackedLayer,
    delivered: &Delivered,
    store: &Store,
) -> Result<Descriptor> {
    let text = |why: &dyn std::fmt::Display| why.to_string();
    let platform = Platform::host();
    let workdir = manifest.entrypoint.workdir.as_ref();
    let config = ImageConfig {
        architecture: platform.architecture,
        os: platform.os,
        config: Execution {
            env: vec![PATH.into()],
            entrypoint: manifest.entrypoint.args.clone(),
            working_dir: workdir.map(|dir| dir.display().to_string()).unwrap_or_default(),
            labels: [(LABEL.to_owned(), label)].into(),
            ..Execution::default()
        },
        rootfs: RootFs { diff_ids: vec![layer.diff_id.clone()], ..RootFs::default() },
        ..ImageConfig::default()
    };
    let config = store.put(&config.to_bytes(), media_type::OCI_CONFIG).map_err(|why| text(&why))?;
    let mut image = ImageManifest::new(config, vec![layer.descriptor.clone()]);
    image.artifact_type = Some(media_type::SMCP_PACKAGE.into());
    image.annotations = BTreeMap::from([
        (HUB_MANIFEST.to_owned(), delivered.manifest_digest.to_string()),
        (HUB_CERTIFICATION.to_owned(), certification.to_string()),
        (HUB_BUNDLE.to_owned(), delivered.bundle.descriptor().digest.to_string()),
        ("org.opencontainers.image.title".into(), delivered.package.clone()),
        ("org.opencontainers.image.version".into(), delivered.version.clone()),
    ]);
    store.put(&image.to_bytes(), media_type::OCI_MANIFEST).map_err(|why| text(&why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_they_say() {
        for (value, want) in [
            (json!("512MB"), Some(512 << 10)),
            (json!("512M"), Some(512 << 10)),
            (json!("1GiB"), Some(1 << 20)),
            (json!(1024), Some(1)),
            (json!("0"), None),
            (json!(null), None),
        ] {
            assert_eq!(memory(&value).unwrap(), want, "{value}");
        }
        for value in [json!("512 MB"), json!("a lot"), json!("-1M"), json!(true), json!("99999999999999999999G")] {
            assert!(memory(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn commands_lie_in_the_bundle_or_are_interpreters() {
        for (command, want) in [
            (&["node", "dist/index.js"][..], Some((&["node", "dist/index.js"][..], Some("node")))),
            (&["python", "-m", "x"], Some((&["python3", "-m", "x"], Some("python3")))),
            (&["./bin/server"], Some((&["/app/bin/server"], None))),
            (&["/app/bin/server", "-v"], Some((&["/app/bin/server", "-v"], None))),
            (&["npx", "x"], None),
            (&["uvx", "x"], None),
            (&["/usr/bin/node"], None),
            (&["../x"], None),
            (&[""], None),
            (&[], None),
        ] {
            let command: Vec<String> = command.iter().map(|word| word.to_string()).collect();
            let got = program(command.clone()).ok();
            let want = want.map(|(args, host)| (args.iter().map(|word| word.to_string()).collect::<Vec<_>>(), host));
            assert_eq!(got, want, "{command:?}");
        }
    }
}
