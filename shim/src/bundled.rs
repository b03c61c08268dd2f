//! `--bundle DIR`: what `smcp bundle` wrote, run by smcp itself.
//!
//! The package lies in a bundle as an OCI layout, and what was granted as flags, beside the plan. So a bundle is run the way of any package: its
//! digests are checked, policy is asked, and the network that is granted is there. The root that other runtimes take is not looked at.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use runtime::Plan;
use serde::{Deserialize, Serialize};

use crate::cli::{self, Command};
use crate::exit::{self, Failure};
use crate::settings::read_small;

/// The file of a bundle with its plan, and with what is recorded here.
pub const FILE: &str = "smcp.json";

/// What a run of a bundle begins with.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Those that made its cage, one word each. What is relative was made absolute, and a variable has the value that it had.
    flags: Vec<String>,
    /// What followed the reference.
    arguments: Vec<String>,
}

/// What of [`FILE`] counts here.
#[derive(Deserialize)]
struct Beside {
    run: Recorded,
}

/// The flags that a bundle may bring: none that says where smcp keeps things or what it asks for.
const FLAGS: [&str; 22] = [
    "--allow-all-net",
    "--allow-host-port",
    "--allow-net",
    "--allow-read",
    "--allow-subprocess",
    "--allow-write",
    "--cpu-time",
    "--cwd",
    "--deny",
    "--env",
    "--fds",
    "--max-cpu",
    "--memory",
    "--min-cert-level",
    "--mount",
    "--net-by-port",
    "--permissions",
    "--pids",
    "--state",
    "--tier",
    "--timeout",
    "--warning-threshold",
];

impl Recorded {
    /// What was typed. `variables` are the names of those that came from outside of the package.
    pub fn of(typed: &cli::Run, plan: &Plan, variables: &BTreeSet<String>, cwd: &Path) -> Recorded {
        // Each flag is named, so that a new one is thought of.
        let cli::Run {
            memory,
            max_cpu,
            cpu_time,
            pids,
            fds,
            timeout,
            mount,
            allow_read,
            allow_write,
            permissions,
            deny,
            allow_subprocess,
            allow_net,
            allow_host_port,
            allow_all_net,
            net_by_port,
            cwd: starts_in,
            tier,
            min_cert_level,
            warning_threshold,
            state,
            // These are in `variables`, or refused.
            env: _,
            env_file: _,
            secret: _,
            // These are of one run, of its caller, or of where the package comes from.
            user: _,
            server: _,
            bundle: _,
            registry: _,
            offline: _,
            refresh: _,
            making: _,
            locked: _,
            trust: _,
            relay: _,
            audit_calls: _,
            dry_run: _,
            json: _,
        } = typed;
        let mut flags = Vec::new();
        let mut add = |name: &str, value: &str| flags.push(format!("--{name}={value}"));
        let once = [
            ("memory", memory),
            ("max-cpu", max_cpu),
            ("cpu-time", cpu_time),
            ("pids", pids),
            ("fds", fds),
            ("timeout", timeout),
            ("min-cert-level", min_cert_level),
            ("warning-threshold", warning_threshold),
            ("state", state),
            ("tier", &tier.map(|tier| tier.to_string())),
        ];
        once.into_iter().for_each(|(name, value)| value.iter().for_each(|value| add(name, value)));
        let often = [("allow-net", allow_net), ("allow-host-port", allow_host_port)];
        often.into_iter().for_each(|(name, values)| values.iter().for_each(|value| add(name, value)));
        let paths = [("mount", mount), ("permissions", permissions)];
        paths.into_iter().for_each(|(name, texts)| texts.iter().for_each(|text| add(name, &absolute(cwd, text))));
        let granted = [("allow-read", allow_read), ("allow-write", allow_write), ("deny", deny)];
        let granted = granted.into_iter().flat_map(|(name, paths)| paths.iter().map(move |path| (name, path)));
        granted.chain(starts_in.iter().map(|path| ("cwd", path))).for_each(|(name, path)| {
            add(name, &cwd.join(path).to_string_lossy());
        });
        let of_plan = plan.env.iter().filter(|variable| variables.contains(&variable.name));
        of_plan.for_each(|variable| add("env", &format!("{}={}", variable.name, variable.value.expose())));
        let any = |path: &String| if path.is_empty() { String::new() } else { format!("={path}") };
        flags.extend(allow_subprocess.iter().map(|path| format!("--allow-subprocess{}", any(path))));
        let words = [(*allow_all_net, "--allow-all-net"), (*net_by_port, "--net-by-port")];
        flags.extend(words.into_iter().filter(|(is_given, _)| *is_given).map(|(_, word)| word.to_owned()));
        Recorded { flags, arguments: typed.args().to_vec() }
    }
}

/// A path, with what may follow it.
fn absolute(cwd: &Path, text: &str) -> String {
    if text.starts_with('/') { text.to_owned() } else { format!("{}/{text}", cwd.display()) }
}

/// Where the package of a bundle is, by a reference.
pub fn package(bundle: &Path) -> String {
    format!("oci-layout:{}:bundle", bundle.join("package").display())
}

/// The run of a command that may be one of a bundle, where it is.
pub fn run_of(command: &Command) -> Option<(&cli::Run, &Path)> {
    let run = match command {
        Command::Run(typed) => &**typed,
        Command::Learn(typed) => &typed.run,
        Command::Test(typed) => &typed.run,
        Command::Bundle(typed) => &typed.run,
        _ => return None,
    };
    Some((run, run.bundle.as_deref()?))
}

/// The command line with what is recorded in the place of `--bundle DIR`: the flags, and the arguments unless there are others. Beside
/// it the flags for people, without the values of variables: a bundle grants what whoever wrote it has typed.
///
/// # Errors
/// Of code 2 where the directory is no bundle of smcp's.
pub fn expand(arguments: &[OsString], typed: &cli::Run, bundle: &Path) -> Result<(Vec<OsString>, String), Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::new(exit::USAGE, format!("--bundle {}: {why}", bundle.display()))
            .hint("a directory that `smcp bundle` wrote; other bundles are run by `smcp oci run --bundle DIR NAME`")
    };
    let bundle: PathBuf = bundle.canonicalize().map_err(|why| fail(&why))?;
    let text = read_small(&bundle.join(FILE)).map_err(|why| fail(&format!("{FILE}: {why}")))?;
    let Beside { run } = serde_json::from_slice(&text).map_err(|why| fail(&format!("{FILE}: {why}")))?;
    if let Some(word) = run.flags.iter().find(|word| !FLAGS.contains(&word.split('=').next().unwrap_or_default())) {
        return Err(fail(&format!("{FILE}: {word:?} is no flag of a bundle")));
    }
    // Without a value it would be the caller's, who was not asked.
    let has_value = |word: &&String| word.strip_prefix("--env=").is_some_and(|variable| variable.contains('='));
    if let Some(word) = run.flags.iter().find(|word| word.starts_with("--env") && !has_value(word)) {
        return Err(fail(&format!("{FILE}: {word:?} has no value: a bundle brings the values of its variables")));
    }
    let shown = |flag: &String| match flag.strip_prefix("--env=") {
        Some(variable) => format!("--env={}", variable.split('=').next().unwrap_or_default()),
        None => flag.clone(),
    };
    let brought = run.flags.iter().map(shown).collect::<Vec<_>>().join(" ");
    let (before, server) = arguments.split_at(arguments.len() - typed.server.len());
    let is_command = |word: &OsString| ["run", "test", "learn", "bundle"].iter().any(|command| word == command);
    let (named, rest) = before.split_at(before.iter().position(is_command).map_or(before.len(), |command| command + 1));
    let mut words = named.to_vec();
    words.extend(run.flags.into_iter().map(OsString::from));
    let mut own = rest.iter();
    while let Some(word) = own.next() {
        match word.as_encoded_bytes() {
            b"--bundle" => drop(own.next()),
            b"--" => {}
            word if word.starts_with(b"--bundle=") => {}
            _ => words.push(word.clone()),
        }
    }
    words.extend(["--".into(), package(&bundle).into()]);
    match server {
        [] => words.extend(run.arguments.into_iter().map(OsString::from)),
        others => words.extend(others.iter().cloned()),
    }
    Ok((words, brought))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is recorded is what is taken, and nothing else is.
    #[test]
    fn flags_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let read = |flags: serde_json::Value, line: &str| {
            let text = serde_json::json!({"run": {"flags": flags, "arguments": ["a", "b"]}});
            std::fs::write(directory.path().join(FILE), text.to_string()).unwrap();
            let bundle = directory.path().display().to_string();
            let line = line.replace("DIR", &bundle);
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let cli = cli::Cli::read(&arguments).unwrap();
            let (typed, bundle) = run_of(&cli.command).unwrap();
            let (words, brought) = expand(&arguments, typed, bundle).map_err(|why| why.message)?;
            assert!(!brought.is_empty() && !brought.contains("A=b"), "{brought}");
            let words = words.into_iter().map(|word| word.into_string().unwrap());
            let package = package(&directory.path().canonicalize().unwrap());
            Ok(words
                .map(|word| if word == package { "PACKAGE".to_owned() } else { word })
                .collect::<Vec<_>>()
                .join(" "))
        };
        let said = Ok::<String, String>("smcp run --memory=1G -- PACKAGE a b".into());
        assert_eq!(read(serde_json::json!(["--memory=1G"]), "smcp run --bundle DIR"), said);
        let said = Ok("smcp run --env=A=b --offline -- PACKAGE x --bundle y".into());
        assert_eq!(read(serde_json::json!(["--env=A=b"]), "smcp run --bundle=DIR --offline -- x --bundle y"), said);
        let said = Ok("smcp test --fds=70 --junit r -- PACKAGE a b".into());
        assert_eq!(read(serde_json::json!(["--fds=70"]), "smcp test --junit r --bundle DIR"), said);
        let said = Ok("smcp -q run --fds=70 -- PACKAGE a b".into());
        assert_eq!(read(serde_json::json!(["--fds=70"]), "smcp -q run --bundle DIR"), said);
        for other in ["--config=/x", "--trust", "--user=root", "--", "word", "--registry=x"] {
            let refused = read(serde_json::json!([other]), "smcp run --bundle DIR").unwrap_err();
            assert!(refused.contains("is no flag of a bundle"), "{other}: {refused}");
        }
        for callers in ["--env=AWS_SECRET_ACCESS_KEY", "--env"] {
            let refused = read(serde_json::json!([callers]), "smcp run --bundle DIR").unwrap_err();
            assert!(refused.contains("has no value"), "{callers}: {refused}");
        }
    }

    #[test]
    fn what_is_typed_is_recorded() {
        let line = "smcp run --memory 1G --mount data:/in --allow-read /r --allow-write w --deny d --allow-subprocess --allow-net a.test \
            --allow-host-port 80 --allow-all-net --net-by-port --cwd c --tier 2 --min-cert-level 1 --warning-threshold 9 --state s \
            --max-cpu 1 --cpu-time 1h --pids 70 --fds 70 --timeout 1h --permissions p.json --env A=b --trust --offline ref x";
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let cli::Cli { command: Command::Run(typed), .. } = cli::Cli::read(&arguments).unwrap() else { panic!() };
        let grant = bundle::Grant {
            env: [("A", "b"), ("B", "c")]
                .map(|(name, value)| (name.to_owned(), bundle::Secret::new(value.to_owned())))
                .to_vec(),
            ..bundle::Grant::nothing()
        };
        let caller = runtime::Caller::of_this_process();
        let identity = runtime::Identity::of_caller(&caller, runtime::UserFlag::Default, 0);
        let plan = Plan::new(&grant, "/".into(), identity, None);
        let recorded = Recorded::of(&typed, &plan, &["A".to_owned()].into(), Path::new("/here"));
        for word in [
            "--mount=/here/data:/in",
            "--allow-read=/r",
            "--allow-write=/here/w",
            "--cwd=/here/c",
            "--env=A=b",
            "--allow-subprocess",
        ] {
            assert!(recorded.flags.iter().any(|flag| flag == word), "{word}: {recorded:?}");
        }
        let names: BTreeSet<&str> = recorded.flags.iter().map(|word| word.split('=').next().unwrap()).collect();
        assert_eq!(names, FLAGS.into());
        assert_eq!(recorded.arguments, ["x"]);
    }
}
