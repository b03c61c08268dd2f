//! What was accepted of the tools, prompts and resources of packages: what a package's first run listed, or what a person
//! accepted since. A server that lists something else is told of, or kept from its client.
//!
//! In the state directory each package has a directory, and each of its digests a file there; what was seen beside that waits in
//! another one for `smcp accept`. What a server says of its tools stands in these files as it said it, readable by their owner
//! alone.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bundle::Package;
use bundle::policy::{Pin, Source, Sourced};
use distribution::{Digest, Resolved};
use jiff::Timestamp;
use runtime::journal::Notes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ulid::Ulid;

use crate::exit::{self, Failure};
use crate::handshake::{Accepted, Change, Found, Kind, List, Lists, Manner, Pins, Words, plain};
use crate::redact::Texts;
use crate::settings::{Settings, write_in_one_step};
use crate::show;
use crate::verdict::Verdict;

/// What one digest of a package offers, as it was accepted or seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Which package.
    family: String,
    digest: Digest,
    version: String,
    /// The run that listed it.
    run: String,
    time: String,
    /// The kinds that were listed.
    lists: Lists,
    /// Those of them of which not all was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Kind>,
}

/// The pins of one digest of a package.
#[derive(Clone, Debug)]
pub struct Place {
    directory: PathBuf,
    family: String,
    digest: Digest,
    version: String,
}

impl Place {
    /// Where they are; nothing need be there.
    pub fn of(settings: &Settings, verdict: &Verdict, resolved: &Resolved, package: &Package) -> Place {
        Place {
            directory: settings.state.join("pins").join(Digest::of(verdict.family.as_bytes()).hex()),
            family: verdict.family.clone(),
            digest: resolved.descriptor.digest.clone(),
            version: package.manifest.version.clone(),
        }
    }

    /// What was accepted of each kind: of this digest, or else of the version that was accepted last.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn accepted(&self) -> Result<BTreeMap<Kind, Accepted>, Failure> {
        let own = Known::read(&self.accepted_file())?.map(|known| known.lists).unwrap_or_default();
        let mut accepted = BTreeMap::new();
        if Kind::ALL.iter().any(|kind| !own.contains_key(kind)) {
            let others = self.others()?;
            for Known { version, lists, .. } in others {
                let of_version = |(kind, list)| (kind, Accepted { list, other_version: Some(version.clone()) });
                accepted.extend(lists.into_iter().map(of_version));
            }
        }
        accepted.extend(own.into_iter().map(|(kind, list)| (kind, Accepted { list, other_version: None })));
        Ok(accepted)
    }

    /// Accepts what was seen last of this digest, where it differs from what was accepted; how, for people.
    ///
    /// # Errors
    /// Where it cannot be read or written.
    pub fn accept(&self) -> Result<Vec<String>, Failure> {
        let Some(seen) = Known::read(&self.seen_file())? else { return Ok(Vec::new()) };
        let before = self.accepted()?;
        let mut own = Known::read(&self.accepted_file())?.unwrap_or_else(|| seen.clone().without_lists());
        let mut lines = Vec::new();
        for (kind, list) in seen.lists {
            let known = before.get(&kind).map(|accepted| accepted.list.clone()).unwrap_or_default();
            let is_whole = !seen.parts.contains(&kind);
            lines.extend(known.changes(kind, &list, is_whole).iter().flat_map(Change::lines));
            own.lists.insert(kind, if is_whole { list } else { known.overlaid(list) });
        }
        Known { run: seen.run, time: Timestamp::now().to_string(), ..own }.write(&self.accepted_file())?;
        fs::remove_file(self.seen_file()).map_err(|why| wrong(&self.seen_file(), &why))?;
        Ok(lines)
    }

    /// Keeps a list as accepted: the first of its kind, or one that `replaces` what is there, as one that was certified does.
    ///
    /// # Errors
    /// Where it cannot be read or written.
    pub fn keep(&self, run: Ulid, kind: Kind, list: List, replaces: bool) -> Result<(), Failure> {
        let mut known = Known::read(&self.accepted_file())?.unwrap_or_else(|| self.nothing(run));
        // Another run of the same package may have been first.
        if replaces || !known.lists.contains_key(&kind) {
            known.lists.insert(kind, list);
        }
        known.write(&self.accepted_file())?;
        self.remove_old()
    }

    /// Keeps what differs, for whoever accepts it.
    ///
    /// # Errors
    /// Where it cannot be read or written.
    pub fn keep_seen(&self, run: Ulid, kind: Kind, list: List, is_whole: bool) -> Result<(), Failure> {
        let before = Known::read(&self.seen_file())?.filter(|known| known.run == run.to_string());
        let mut known = before.unwrap_or_else(|| self.nothing(run));
        known.lists.insert(kind, list);
        known.parts.retain(|part| *part != kind);
        if !is_whole {
            known.parts.push(kind);
        }
        known.write(&self.seen_file())
    }

    /// Only so many versions of one package are known.
    fn remove_old(&self) -> Result<(), Failure> {
        const MOST: usize = 8;
        let others = self.others()?;
        let old = others.len().saturating_sub(MOST - 1);
        for known in &others[..old] {
            let path = self.directory.join(format!("{}.json", known.digest.hex()));
            fs::remove_file(&path).map_err(|why| wrong(&path, &why))?;
        }
        Ok(())
    }

    /// What was accepted of other digests of the package, the newest last.
    fn others(&self) -> Result<Vec<Known>, Failure> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(wrong(&self.directory, &why)),
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let is_of_a_digest = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
            name.is_some_and(|name| !name.contains('.') && name != self.digest.hex())
        };
        let read = |path: PathBuf| Known::read(&path).transpose();
        let mut found = paths.filter(is_of_a_digest).filter_map(read).collect::<Result<Vec<Known>, _>>()?;
        found.sort_by_key(|known| known.time.parse::<Timestamp>().ok());
        Ok(found)
    }

    fn nothing(&self, run: Ulid) -> Known {
        let (family, digest, version) = (self.family.clone(), self.digest.clone(), self.version.clone());
        let (run, time) = (run.to_string(), Timestamp::now().to_string());
        Known { family, digest, version, run, time, lists: Lists::new(), parts: Vec::new() }
    }

    fn accepted_file(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.digest.hex()))
    }

    fn seen_file(&self) -> PathBuf {
        self.directory.join(format!("{}.seen.json", self.digest.hex()))
    }
}

impl Known {
    /// The most that is read and written, bytes: lists are what one message may have, a few of them.
    const MOST: u64 = 64 << 20;

    fn read(path: &Path) -> Result<Option<Known>, Failure> {
        let fail = |why: &dyn std::fmt::Display| wrong(path, why);
        let bytes = match fs::metadata(path) {
            Ok(about) if about.len() > Known::MOST || !about.is_file() => return Err(fail(&"it is no such file")),
            Ok(_) => fs::read(path).map_err(|why| fail(&why))?,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(fail(&why)),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|why| fail(&why))
    }

    /// For its owner alone. What could not be read again would stop every later run, and a server's lists are its own to choose.
    fn write(&self, path: &Path) -> Result<(), Failure> {
        let length = format!("{:#}\n", json!(self)).len();
        if length as u64 > Known::MOST {
            return Err(wrong(path, &format!("{length} bytes of lists are more than are kept")));
        }
        write_in_one_step(path, self, 0o600).map_err(|why| wrong(path, &why))
    }

    fn without_lists(self) -> Known {
        Known { lists: Lists::new(), parts: Vec::new(), ..self }
    }
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(exit::CONFIGURATION, format!("{}: {why}", path.display()))
        .hint("it says which tools were accepted: put it right, or remove it, so that the next run's are accepted")
}

/// What a run's lists are held to, where policy says so; by default not those of a `direct` run: nobody loses what they ask for by a default.
///
/// # Errors
/// Where what was accepted cannot be read.
pub fn of_run(
    verdict: &Verdict,
    resolved: &Resolved,
    package: &Package,
    settings: &Settings,
    direct: bool,
) -> Result<Option<(Place, Pins)>, Failure> {
    let Sourced { value, source } = verdict.policy.tools.pin();
    let manner = match (value, &source) {
        (Pin::Allow, _) => return Ok(None),
        (Pin::Warn, Source::Default) if direct => return Ok(None),
        (Pin::Warn, Source::Default) => Manner::Once,
        (Pin::Warn, _) => Manner::Warn,
        (Pin::Block, _) => Manner::Block,
    };
    let place = Place::of(settings, verdict, resolved, package);
    // By what it is made is none of its name.
    let name = resolved.name.split('?').next().unwrap_or(&resolved.name);
    let pins = Pins {
        manner,
        accepted: place.accepted()?,
        certified: verdict.judgement.standing.tools.clone(),
        words: Words { package: plain(name, NAME), demand: format!("policy.tools.pin is {value}, {source}") },
    };
    Ok(Some((place, pins)))
}

/// What of a package's name errors have.
const NAME: usize = 200;

/// What the audit log has of the pins of a run: the mode, and the digests of what its lists are held to.
pub fn recorded(pins: &Pins) -> Value {
    let digests: BTreeMap<Kind, Digest> =
        pins.accepted.iter().map(|(kind, accepted)| (*kind, accepted.list.digest())).collect();
    let mode = if pins.manner == Manner::Block { Pin::Block } else { Pin::Warn };
    json!({"mode": mode.to_string(), "accepted": digests, "certified": pins.certified})
}

/// Who hears what a run's lists come to: it keeps what is accepted, and tells of what differs.
pub struct Keeper {
    place: Place,
    run: Ulid,
    package: String,
    blocks: bool,
    certified: bool,
    notes: Notes,
    texts: Texts,
    told: usize,
}

/// How often a run tells of lists that differ: a server could go on for ever.
const MOST_TOLD: usize = 32;

impl Keeper {
    /// Of a run whose begin is in the log.
    pub fn new(place: Place, pins: &Pins, notes: Notes, texts: Texts) -> Keeper {
        let run = notes.run();
        let (package, certified) = (pins.words.package.clone(), pins.certified.is_some());
        let blocks = pins.manner == Manner::Block;
        Keeper { place, run, package, blocks, certified, notes, texts, told: 0 }
    }

    /// Takes what was found out. What a person has to be told is added to `told`, for stderr.
    pub fn hear(&mut self, found: Found, told: &mut Vec<u8>) {
        let kept = match found {
            Found::Accepted(kind, list) => self.place.keep(self.run, kind, list, self.certified && kind == Kind::Tools),
            Found::More(kind, list, changes) => {
                self.tell(kind, &changes, true, told);
                self.place.keep(self.run, kind, list, true)
            }
            Found::Changed { changes, kind, seen, is_whole } => {
                self.tell(kind, &changes, false, told);
                // Nobody can say of what cannot be compared that it is good.
                match changes.iter().any(Change::is_unreadable) {
                    true => Ok(()),
                    false => self.place.keep_seen(self.run, kind, seen, is_whole),
                }
            }
        };
        if let Err(failure) = kept {
            say(told, &format!("warning: what its server lists cannot be kept: {}", failure.message));
        }
    }

    fn tell(&mut self, kind: Kind, changes: &[Change], is_accepted: bool, told: &mut Vec<u8>) {
        if changes.is_empty() || self.told == MOST_TOLD {
            return;
        }
        self.told += 1;
        let mut lines: Vec<String> = changes.iter().flat_map(Change::lines).collect();
        lines.iter_mut().for_each(|line| self.texts.clear(line));
        let is_withheld = self.blocks && changes.iter().any(Change::says_more);
        self.notes.changed(&json!({"kind": kind, "changes": lines, "withheld": is_withheld}));
        if show::is_quiet() && !is_withheld {
            return;
        }
        let word = if is_withheld { "error" } else { "warning" };
        let outcome = if is_withheld { ", and the client does not get them" } else { "" };
        let than = if self.certified && kind == Kind::Tools { "certified" } else { "accepted" };
        say(
            told,
            &format!("{word}: the {} of {} are not those that were {than}{outcome}:", kind.words().1, self.package),
        );
        lines.iter().for_each(|line| say(told, &format!("  {line}")));
        if is_accepted {
            say(
                told,
                "hint: read what changed; it is told once, and accepted by that (policy.tools.pin keeps to what was)",
            );
        } else if than == "accepted" && !changes.iter().any(Change::is_unreadable) {
            say(told, &format!("hint: read what changed; `smcp accept {}` accepts it", self.package));
        }
    }
}

fn say(told: &mut Vec<u8>, line: &str) {
    told.extend_from_slice(show::printable(line).as_bytes());
    told.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seen.json");
        let known = |length: u64| -> Known {
            let of = "x".repeat(usize::try_from(length).unwrap());
            serde_json::from_value(
                json!({"family": of, "digest": format!("sha256:{}", "0".repeat(64)), "version": "1", "run": "r",
                "time": "t", "lists": {}, "parts": []}),
            )
            .unwrap()
        };
        known(9).write(&path).unwrap();
        assert!(known(Known::MOST).write(&path).unwrap_err().message.contains("more than are kept"));
        assert_eq!(Known::read(&path).unwrap().unwrap().family.len(), 9);
    }
}
