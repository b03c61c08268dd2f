//! `./x.mcpb`: a bundle of MCP, a zip archive with a `manifest.json` that says how its server is started and what it asks the user for.
//!
//! | of the manifest | becomes |
//! |---|---|
//! | `mcp_config.command`, `args` before the first that the user gives | the entry point, `${__dirname}` is `/app` |
//! | `${user_config.X}` as an argument | an argument of the user's; a directory or file is granted read-write |
//! | `--flag ${user_config.X}`, `--flag=${user_config.X}` | the same behind its flag, which the user gives too |
//! | `${user_config.X}` as a variable | a variable of the user's, a secret where it is `sensitive` |
//! | any other variable | its default |

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use distribution::{Asking, Digest, Download, Hasher, Runtime};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::BuildError;
use super::gate::same;
use super::image::Parts;
use super::runtime::{self, Layers};
use super::{Job, zip};
use crate::manifest::Manifest;
use crate::pack::LayerBuilder;

const APP: &str = "/app";

/// What is read of `manifest.json`; other keys are for shops.
#[derive(Debug, Deserialize)]
struct Described {
    name: String,
    version: String,
    description: Option<String>,
    server: Server,
    #[serde(default)]
    user_config: BTreeMap<String, Asked>,
    #[serde(default)]
    compatibility: Value,
}

#[derive(Debug, Deserialize)]
struct Server {
    mcp_config: Config,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    command: Option<String>,
    args: Option<Vec<String>>,
    env: BTreeMap<String, String>,
    platform_overrides: BTreeMap<String, Config>,
}

/// What the user is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    #[serde(rename = "type")]
    kind: String,
    required: bool,
    sensitive: bool,
    multiple: bool,
    default: Value,
}

/// The largest bundle that is fetched, in bytes.
const MAX_FETCHED: usize = 1 << 30;

/// Fetches a bundle, compares it with its hash, and makes a package of it. Wherever the url redirects to: the hash vouches for it.
pub(super) fn download(job: &Job, Download { url, digest }: &Download) -> Result<Parts, BuildError> {
    job.say(format!("fetching {url}"));
    let answer = Asking::new(&job.options.registries.access).get(url, "*/*", None, MAX_FETCHED)?;
    let missing = || distribution::Error::NotFound { what: url.clone(), place: "its host".into() };
    let (bytes, _) = answer.ok_or_else(missing)?;
    same(url, &digest.to_string(), &Digest::by(digest.algorithm(), &bytes).to_string())?;
    let staging = job.staging()?;
    let file = staging.path().join("bundle.mcpb");
    fs::write(&file, &bytes).map_err(BuildError::io("writing a bundle"))?;
    let mut parts = package(job, &file)?;
    if let Some(source) = &mut parts.manifest.source {
        source.extra.insert("url".into(), url.as_str().into());
    }
    Ok(parts)
}

/// Unpacks the bundle and packs it at `/app`.
pub(super) fn package(job: &Job, file: &Path) -> Result<Parts, BuildError> {
    let staging = job.staging()?;
    let dir = staging.path();
    zip::unpack(file, dir)?;
    let wrong = |why: String| BuildError::Archive { file: file.into(), why: format!("manifest.json: {why}") };
    let text = fs::read(dir.join("manifest.json")).map_err(|why| wrong(why.to_string()))?;
    let mut described: Described = serde_json::from_slice(&text).map_err(|why| wrong(why.to_string()))?;
    let over = described.server.mcp_config.platform_overrides.remove("linux").unwrap_or_default();
    let config = &mut described.server.mcp_config;
    config.command = over.command.or(config.command.take());
    config.args = over.args.or(config.args.take());
    config.env.extend(over.env);
    let command = config.command.clone().ok_or_else(|| wrong("server.mcp_config.command is missing".into()))?;
    let mut layer = LayerBuilder::new(job.options.source_date_epoch.unwrap_or(0));
    layer.add_tree(dir, Path::new(APP), &|_| true)?;
    let compiled = job.staging()?;
    let (layers, program) = match command.as_str() {
        "node" => (runtime::node(job, described.compatibility["runtimes"]["node"].as_str())?, "node".to_owned()),
        "python" | "python3" => {
            let (layers, python) = runtime::python(job)?;
            python.compile(None, dir, Path::new(APP), compiled.path(), &|_| true)?;
            layer.add_tree(compiled.path(), Path::new(APP), &|_| true)?;
            let program = layers.host.clone().unwrap_or_else(|| format!("/usr/bin/python{}", python.version));
            (layers, program)
        }
        other => (
            own(job)?,
            own_program(other, &layer).ok_or_else(|| {
                wrong(format!("it is started by {other:?}, which is neither node nor python nor a file of the bundle"))
            })?,
        ),
    };
    let manifest = described.manifest(&program, &digest(file)?).map_err(wrong)?;
    let manifest = Manifest::from_value(&manifest)?;
    let application = layer.finish(job.store)?;
    Ok(Parts { manifest, layers, application, env: Vec::new(), annotations: BTreeMap::new() })
}

/// A program of the bundle's own needs the base alone; without one where the machine's interpreter is asked for.
fn own(job: &Job) -> Result<Layers, BuildError> {
    if job.options.runtime == Runtime::Host { Ok(Layers::default()) } else { runtime::base(job) }
}

fn own_program(command: &str, layer: &LayerBuilder) -> Option<String> {
    let within = command.strip_prefix("${__dirname}/").unwrap_or(command);
    let path = format!("{APP}/{}", within.strip_prefix("./").unwrap_or(within));
    layer.holds(Path::new(&path)).then_some(path)
}

fn digest(file: &Path) -> Result<String, BuildError> {
    let mut hasher = Hasher::new();
    let hash = |mut file| io::copy(&mut file, &mut hasher);
    File::open(file).and_then(hash).map_err(BuildError::io(format!("reading {}", file.display())))?;
    Ok(hasher.finish().0.to_string())
}

impl Described {
    /// The manifest of the package.
    fn manifest(&self, program: &str, integrity: &str) -> Result<Value, String> {
        let (mut entry, mut args, mut files) = (vec![program.to_owned()], Vec::new(), Vec::new());
        let config = &self.server.mcp_config;
        let mut words = config.args.iter().flatten().map(|word| plain(word)).peekable();
        while let Some(word) = words.next() {
            let behind = words.peek().and_then(|next| whole(next)).map(str::to_owned);
            let (flag, key) =
                match (whole(&word), word.split_once('=').and_then(|(flag, rest)| Some((flag, whole(rest)?)))) {
                    (Some(key), _) => (None, key.to_owned()),
                    (None, Some((flag, key))) if flag.starts_with('-') => (Some(flag.to_owned()), key.to_owned()),
                    _ if word.starts_with('-') && behind.is_some() => {
                        words.next();
                        (Some(word.clone()), behind.unwrap_or_default())
                    }
                    _ if word.contains("${user_config.") => {
                        return Err(format!(
                            "server.mcp_config.args: {word:?} holds what the user gives within a word"
                        ));
                    }
                    _ if args.is_empty() => {
                        entry.push(word.clone());
                        continue;
                    }
                    _ => return Err(format!("server.mcp_config.args: {word:?} follows what the user gives")),
                };
            let asked = self.asked(&key)?;
            let mut spec =
                json!({"name": key, "type": "string", "required": asked.required && asked.default.is_null()});
            if ["directory", "file"].contains(&asked.kind.as_str()) {
                spec["type"] = "path".into();
                spec["mount"] = key.as_str().into();
                if !files.iter().any(|file: &Value| file["id"] == key.as_str()) {
                    files.push(json!({"id": key, "access": "rw", "target": format!("/config/{key}"), "from": "user"}));
                }
            }
            if let Some(flag) = flag {
                spec["flag"] = flag.into();
            }
            if asked.multiple {
                spec["repeated"] = true.into();
            }
            args.push(spec);
        }
        let env =
            config.env.iter().map(|(name, value)| self.variable(name, &plain(value))).collect::<Result<Vec<_>, _>>()?;
        let mut manifest = json!({
            "schemaVersion": 1,
            "name": self.name,
            "version": self.version,
            "mcp": {"transport": {"type": "stdio"}},
            "entrypoint": {"args": entry},
            "args": args,
            "env": env,
            "permissions": {"filesystem": files},
            "source": {"type": "mcpb", "ref": format!("{}@{}", self.name, self.version), "integrity": integrity},
        });
        if let Some(text) = self.description.as_ref().filter(|text| !text.is_empty()) {
            manifest["description"] = text.as_str().into();
        }
        Ok(manifest)
    }

    fn variable(&self, name: &str, value: &str) -> Result<Value, String> {
        let Some(key) = whole(value) else {
            return match value.contains("${user_config.") {
                true => Err(format!("server.mcp_config.env: {name} holds what the user gives within a text")),
                false => Ok(json!({"name": name, "default": value})),
            };
        };
        let asked = self.asked(key)?;
        let mut spec =
            json!({"name": name, "secret": asked.sensitive, "required": asked.required && asked.default.is_null()});
        match &asked.default {
            Value::Null => {}
            Value::String(text) => spec["default"] = plain(text).into(),
            other => spec["default"] = other.to_string().into(),
        }
        Ok(spec)
    }

    fn asked(&self, key: &str) -> Result<&Asked, String> {
        self.user_config.get(key).ok_or_else(|| format!("user_config: there is no {key:?}"))
    }
}

/// A word with the bundle's place in it.
fn plain(word: &str) -> String {
    word.replace("${__dirname}", APP).replace("${pathSeparator}", "/").replace("${/}", "/")
}

/// The key, where the word is what the user gives and nothing else.
fn whole(word: &str) -> Option<&str> {
    let key = word.strip_prefix("${user_config.")?.strip_suffix('}')?;
    (!key.contains(['$', '{', '}'])).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(config: Value, asked: Value) -> Result<Value, String> {
        let described = json!({"name": "b", "version": "1", "server": {"mcp_config": config}, "user_config": asked});
        let described: Described = serde_json::from_value(described).unwrap();
        let manifest = described.manifest("node", "sha256:0")?;
        Manifest::from_value(&manifest).map_err(|why| why.to_string())?;
        Ok(manifest)
    }

    #[test]
    fn what_the_user_is_asked_for() {
        let config = json!({
            "command": "node",
            "args": ["${__dirname}/server/index.js", "--quiet", "--db=${user_config.db}", "--key", "${user_config.key}", "${user_config.dirs}"],
            "env": {"TOKEN": "${user_config.token}", "MODE": "${__dirname}${/}mode", "LIMIT": "${user_config.limit}"},
        });
        let asked = json!({
            "db": {"type": "file", "required": true}, "key": {"type": "string"},
            "dirs": {"type": "directory", "multiple": true}, "token": {"type": "string", "sensitive": true, "required": true},
            "limit": {"type": "number", "default": 5},
        });
        let got = manifest(config, asked).unwrap();
        assert_eq!(got["entrypoint"]["args"], json!(["node", "/app/server/index.js", "--quiet"]));
        assert_eq!(
            got["args"][0],
            json!({"name": "db", "type": "path", "mount": "db", "flag": "--db", "required": true})
        );
        assert_eq!(got["args"][1], json!({"name": "key", "type": "string", "flag": "--key", "required": false}));
        assert_eq!(got["args"][2]["repeated"], true);
        assert_eq!(got["permissions"]["filesystem"].as_array().unwrap().len(), 2);
        assert_eq!(
            got["env"],
            json!([
                {"name": "LIMIT", "secret": false, "required": false, "default": "5"},
                {"name": "MODE", "default": "/app/mode"},
                {"name": "TOKEN", "secret": true, "required": true},
            ])
        );
    }

    #[test]
    fn what_cannot_be_said() {
        for (config, why) in [
            (json!({"args": ["x${user_config.a}"]}), "within a word"),
            (json!({"args": ["${user_config.a}", "last"]}), "follows"),
            (json!({"args": ["${user_config.none}"]}), "there is no"),
            (json!({"env": {"A": "Bearer ${user_config.a}"}}), "within a text"),
        ] {
            let error = manifest(config, json!({"a": {"type": "string"}})).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
