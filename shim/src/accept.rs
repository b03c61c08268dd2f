//! What was accepted of a package: what its first version that ran asked for, and what a person or a project's `smcp.lock`
//! accepted since. A version that asks for more is not run unseen.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use bundle::policy::{NewPermissions, Sourced};
use bundle::{Asked, Package, Reason, ReasonKind, Signer};
use distribution::{Digest, Resolved};
use serde::{Deserialize, Serialize};

use crate::cli;
use crate::exit::{self, Failure};
use crate::learn::is_yes;
use crate::pins::Place;
use crate::settings::{Settings, read_small, write_in_one_step};
use crate::show::{self, outln};
use crate::verdict::{Seen, Verdict};

/// The file of a project.
const LOCK: &str = "smcp.lock";

/// Accepts what a version asks for, in the user's state or in the `smcp.lock` of the working directory.
///
/// # Errors
/// Where the package cannot be had, policy refuses it, or the file cannot be written.
pub fn accept(text: &str, made: &cli::Making, lock: bool, settings: &Settings) -> Result<(), Failure> {
    let seen = Seen::of(text, made, settings)?;
    let (_pending, package, verdict) = seen.judged(settings)?;
    let resolved = &seen.resolved;
    verdict.judgement.passed()?;
    let asked = Asked::of(&package.manifest);
    let known = Accepted::read(&place(settings, &verdict.family))?;
    let new = asked.beyond(&known.as_ref().map(|known| known.asked.clone()).unwrap_or_default());
    if lock {
        let path = std::env::current_dir().map_err(|why| wrong(Path::new(LOCK), &why))?.join(LOCK);
        let mut file = LockFile::read(&path)?.unwrap_or_default();
        file.packages.insert(resolved.name.clone(), Locked::of(resolved, asked, &verdict));
        write(&path, &file)?;
        outln!("{} {} is in {}", resolved.name, resolved.descriptor.digest, path.display());
    } else {
        Accepted::keep(settings, &verdict.family, &package, known, asked)?;
        let tools = Place::of(settings, &verdict, resolved, &package).accept()?;
        outln!("{} {} is accepted", resolved.name, resolved.descriptor.digest);
        tools.iter().for_each(|line| outln!("  {line}"));
    }
    new.iter().for_each(|line| outln!("  + {line}"));
    Ok(())
}

/// What a run asks for, compared with what was accepted.
pub enum Acceptance {
    /// Nothing of it is new.
    Known,
    /// It is kept as accepted once policy has let it run: the first version, or one of a policy that lets all.
    Kept(Option<Accepted>),
    /// A person is asked.
    Asked(Accepted, Vec<String>),
}

impl Acceptance {
    /// Compares, and adds to the verdict what stands against the package. Reads one small file.
    ///
    /// # Errors
    /// Where what was accepted cannot be read.
    pub fn of(verdict: &mut Verdict, package: &Package, settings: &Settings) -> Result<Acceptance, Failure> {
        let asked = Asked::of(&package.manifest);
        let Some(known) = Accepted::read(&place(settings, &verdict.family))? else { return Ok(Acceptance::Kept(None)) };
        let new = asked.beyond(&known.asked);
        if new.is_empty() {
            return Ok(Acceptance::Known);
        }
        let Sourced { value, source } = verdict.policy.new_permissions();
        match value {
            NewPermissions::Allow => return Ok(Acceptance::Kept(Some(known))),
            // A client that speaks the protocol is no person, wherever it was started from.
            NewPermissions::Ask if io::stdin().is_terminal() && io::stderr().is_terminal() => {
                return Ok(Acceptance::Asked(known, new));
            }
            NewPermissions::Ask | NewPermissions::Refuse => {}
        }
        let what = format!(
            "version {} asks for more than was accepted of version {}: {} (new_permissions is {value}, {source})",
            package.manifest.version,
            known.version,
            new.join(", "),
        );
        verdict.judgement.against.push(denial(what, "read it, then accept it: smcp accept REF"));
        Ok(Acceptance::Known)
    }

    /// Asks where somebody has to be asked, and keeps what is accepted from now on.
    ///
    /// # Errors
    /// Where the answer is no, or nothing can be kept.
    pub fn settle(self, verdict: &Verdict, package: &Package, settings: &Settings) -> Result<(), Failure> {
        let known = match self {
            Acceptance::Known => return Ok(()),
            Acceptance::Kept(known) => known,
            Acceptance::Asked(known, new) => {
                let manifest = &package.manifest;
                show::tell(&format!(
                    "{} {} asks for more than version {}:",
                    manifest.name, manifest.version, known.version
                ));
                new.iter().for_each(|line| show::tell(&format!("  + {line}")));
                if !ask("Accept this, also for later versions?") {
                    return Err(Failure::new(exit::DENIED, format!("not accepted: {}", new.join(", ")))
                        .hint("smcp accept REF accepts it later"));
                }
                Some(known)
            }
        };
        Accepted::keep(settings, &verdict.family, package, known, Asked::of(&package.manifest))
    }
}

/// Asks on the terminal, and never on the protocol's stdin.
pub fn ask(question: &str) -> bool {
    let terminal = |write: bool| OpenOptions::new().read(!write).write(write).open("/dev/tty");
    let (Ok(mut words), Ok(answers)) = (terminal(true), terminal(false)) else { return false };
    words.write_all(format!("{question} [y/N] ").as_bytes()).is_ok() && is_yes(answers)
}

/// Compares a package with the `smcp.lock` of the working directory or of one that holds it, and adds to the verdict what stands against it.
///
/// # Errors
/// Where there is no such file, or it cannot be read.
pub fn locked(verdict: &mut Verdict, resolved: &Resolved, package: &Package) -> Result<(), Failure> {
    let directory = std::env::current_dir().map_err(|why| wrong(Path::new(LOCK), &why))?;
    let paths = directory.ancestors().map(|dir| dir.join(LOCK));
    let path = paths.into_iter().find(|path| path.symlink_metadata().is_ok()).ok_or_else(|| {
        Failure::new(
            exit::CONFIGURATION,
            format!("--locked: there is no {LOCK} in {} or above it", directory.display()),
        )
        .hint("smcp accept --lock REF writes one")
    })?;
    let file = LockFile::read(&path)?.unwrap_or_default();
    let reasons = match file.packages.get(&resolved.name) {
        None => vec![format!("{} is not in {}", resolved.name, path.display())],
        Some(locked) => locked.against(&Locked::of(resolved, Asked::of(&package.manifest), verdict), &path),
    };
    let hint = "where that is what it should be: smcp accept --lock REF";
    verdict.judgement.against.extend(reasons.into_iter().map(|what| denial(what, hint)));
    Ok(())
}

fn denial(what: String, hint: &str) -> Reason {
    Reason { kind: ReasonKind::Policy, what, hint: Some(hint.into()) }
}

/// What was accepted of the versions of one package.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// Which package.
    family: String,
    /// The newest version that was accepted.
    version: String,
    /// What all of them ask for.
    asked: Asked,
}

impl Accepted {
    fn read(path: &Path) -> Result<Option<Accepted>, Failure> {
        read(path)
    }

    fn keep(
        settings: &Settings,
        family: &str,
        package: &Package,
        known: Option<Accepted>,
        asked: Asked,
    ) -> Result<(), Failure> {
        let asked = known.map(|known| known.asked).unwrap_or_default().and(&asked);
        let kept = Accepted { family: family.into(), version: package.manifest.version.clone(), asked };
        write(&place(settings, family), &kept)
    }
}

/// What is accepted of one package is one file.
fn place(settings: &Settings, family: &str) -> PathBuf {
    settings.state.join("accepted").join(format!("{}.json", Digest::of(family.as_bytes()).hex()))
}

/// `smcp.lock`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockFile {
    /// By canonical name.
    packages: BTreeMap<String, Locked>,
}

/// What a project runs under one name.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Locked {
    digest: Digest,
    asked: Asked,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signers: Vec<String>,
}

impl LockFile {
    fn read(path: &Path) -> Result<Option<LockFile>, Failure> {
        read(path)
    }
}

impl Locked {
    fn of(resolved: &Resolved, asked: Asked, verdict: &Verdict) -> Locked {
        // Files have other names on other machines: a key is told by what it is.
        let signer = |signer: &Signer| match signer {
            Signer::Key { fingerprint, .. } => format!("key {fingerprint}"),
            identity => identity.to_string(),
        };
        let signers = verdict.judgement.standing.signers.iter().map(signer).collect();
        Locked { digest: resolved.descriptor.digest.clone(), asked, signers }
    }

    fn against(&self, now: &Locked, path: &Path) -> Vec<String> {
        let path = path.display();
        let mut reasons = Vec::new();
        if now.digest != self.digest {
            reasons.push(format!("it is {}, and {path} has {}", now.digest, self.digest));
        }
        let new = now.asked.beyond(&self.asked);
        if !new.is_empty() {
            reasons.push(format!("it asks for more than {path} has: {}", new.join(", ")));
        }
        let gone: Vec<&str> =
            self.signers.iter().filter(|signer| !now.signers.contains(signer)).map(String::as_str).collect();
        if !gone.is_empty() {
            reasons.push(format!("it is not signed by {}, as {path} has it", gone.join(" and ")));
        }
        reasons
    }
}

/// Reads a file of what was accepted, where there is one.
///
/// # Errors
/// Where it is none.
pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    let bytes = match read_small(path) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(wrong(path, &why)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|why| wrong(path, &why))
}

/// Writes one, also for those who work on the same project.
///
/// # Errors
/// Where it cannot be written.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    write_in_one_step(path, value, 0o644).map_err(|why| wrong(path, &why))
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(exit::CONFIGURATION, format!("{}: {why}", path.display()))
        .hint("it says what was accepted: put it right, or remove it and accept anew by smcp accept REF")
}
