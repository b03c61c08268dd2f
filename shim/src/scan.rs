//! `smcp scan`: what a package offers, asked of it in a cage without network, without secrets and without anything that lasts, and
//! compared with what was accepted of it.

use std::path::PathBuf;

use bundle::policy::{Policy, Source, Sourced};
use bundle::{EnvFlag, NetworkCeiling, Package, Request};
use distribution::{Digest, Resolved, Secret};
use runtime::journal::{self, Ending};
use serde_json::{Value, json};
use tempfile::TempDir;
use ulid::Ulid;

use crate::cli;
use crate::exit::{self, Failure};
use crate::handshake::{Change, Kind, List, canonical, hidden};
use crate::pins::Place;
use crate::questioner::{Offer, Trouble};
use crate::run::{self, Errand};
use crate::settings::Settings;
use crate::show::{self, outln};
use crate::verdict::Verdict;

/// Scans a package and prints what was found; the exit code is 0, or 1 for findings, or that of a run.
pub fn scan(typed: &cli::Scan, settings: Result<Settings, Failure>) -> u8 {
    let flags = match cli::Run::of(&typed.reference, &typed.arguments) {
        Ok(flags) => flags,
        Err(error) => return Failure::new(exit::USAGE, error.to_string()).print(),
    };
    let mut scan = Scan::default();
    let code = run::run_as(&flags, settings, journal::new_run(), None, Errand::Scan(&mut scan));
    if let Some(report) = &scan.report {
        match typed.json {
            true => show::print_json(&report.json()),
            false => report.print(),
        }
    }
    code
}

/// A scan under way.
#[derive(Default)]
pub struct Scan {
    home: Option<TempDir>,
    /// Required variables that got a value of no meaning.
    stand_ins: Vec<String>,
    report: Option<Report>,
}

/// A directory beside those that last, which goes when it is dropped.
///
/// # Errors
/// Where it cannot be made.
pub fn throw_away(settings: &Settings) -> Result<TempDir, Failure> {
    let make = || {
        std::fs::create_dir_all(&settings.state)?;
        tempfile::Builder::new().prefix("scan-").tempdir_in(&settings.state)
    };
    make().map_err(|why| {
        Failure::new(exit::CAGE, format!("no directory for the server in {}: {why}", settings.state.display()))
    })
}

/// What required variables get for which a user would give a value.
const STAND_IN: &str = "smcp-scan";

impl Scan {
    /// Of policy: nothing of the network is granted.
    pub fn policy(flags: Policy) -> Policy {
        let nothing = Sourced { value: Vec::new(), source: Source::Flag("smcp scan") };
        let mut scan = Policy::default();
        scan.ceilings.network = NetworkCeiling::new(Some(nothing), Vec::new());
        flags.together(scan)
    }

    /// A directory of the state that goes with the scan, for what would last.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn states(&mut self, settings: &Settings) -> Result<PathBuf, Failure> {
        Ok(self.home.insert(throw_away(settings)?).path().to_owned())
    }

    /// Gives required variables a value of no meaning.
    pub fn stand_in(&mut self, request: &mut Request, package: &Package) {
        let missing = package.manifest.env.iter().filter(|spec| spec.required && spec.default.is_none());
        for spec in missing {
            self.stand_ins.push(spec.name.clone());
            request.env.push(EnvFlag { name: spec.name.clone(), value: Some(Secret::new(STAND_IN)) });
        }
    }

    /// Takes what the server said, and makes it the end of the run.
    ///
    /// # Errors
    /// Where what was accepted cannot be read, or what was seen not be written.
    pub fn end(
        &mut self,
        heard: Result<Offer, Trouble>,
        verdict: &Verdict,
        resolved: &Resolved,
        place: &Place,
        run: Ulid,
        ending: &mut Ending,
    ) -> Result<(), Failure> {
        let offer = match heard {
            Ok(offer) => offer,
            Err(trouble) => {
                trouble.end(ending);
                return Ok(());
            }
        };
        let report = compare(offer, resolved, verdict, place, run, std::mem::take(&mut self.stand_ins))?;
        ending.exit = if report.has_findings() { exit::FINDINGS } else { exit::OK };
        if report.has_findings() {
            ending.cause = "findings";
        }
        self.report = Some(report);
        Ok(())
    }
}

/// Holds what is offered to what was accepted or certified, and keeps what differs for `smcp accept`.
fn compare(
    offer: Offer,
    resolved: &Resolved,
    verdict: &Verdict,
    place: &Place,
    run: Ulid,
    stand_ins: Vec<String>,
) -> Result<Report, Failure> {
    let certified = &verdict.judgement.standing.tools;
    let accepted = place.accepted()?;
    let (mut changes, mut states) = (offer.unreadable.clone(), Vec::new());
    for kind in Kind::ALL {
        let none = List::default();
        let list = offer.lists.get(&kind).unwrap_or(&none);
        let certified = certified.as_ref().filter(|_| kind == Kind::Tools);
        let mut new = Vec::new();
        let is_unreadable = offer.unreadable.iter().any(|change| change.kind() == kind);
        let state = match (certified, accepted.get(&kind)) {
            _ if is_unreadable => "cannot be compared",
            (Some(certified), _) if list.digest() == *certified => {
                place.keep(run, kind, list.clone(), true)?;
                "certified"
            }
            (Some(certified), _) => {
                new.push(Change::NotCertified { kind, is: list.digest(), certified: certified.clone() });
                "not as certified"
            }
            (None, Some(known)) => {
                new = known.list.changes(kind, list, known.other_version.is_none());
                if new.is_empty() { "accepted" } else { "not as accepted" }
            }
            (None, None) => "not accepted yet",
        };
        let is_to_be_kept = !new.is_empty() || (!accepted.contains_key(&kind) && !list.is_empty());
        if certified.is_none() && is_to_be_kept && !is_unreadable {
            place.keep_seen(run, kind, list.clone(), true)?;
        }
        changes.extend(new);
        states.push((kind, state));
    }
    let hidden = offer.lists.iter().flat_map(|(kind, list)| hidden(*kind, list)).collect();
    let (name, digest) = (resolved.name.clone(), resolved.descriptor.digest.clone());
    Ok(Report { name, digest, certified: certified.clone(), stand_ins, offer, states, changes, hidden })
}

/// What a scan comes to.
struct Report {
    name: String,
    digest: Digest,
    certified: Option<Digest>,
    stand_ins: Vec<String>,
    offer: Offer,
    /// Of each kind, what it is to what was accepted.
    states: Vec<(Kind, &'static str)>,
    changes: Vec<Change>,
    hidden: Vec<String>,
}

impl Report {
    fn has_findings(&self) -> bool {
        !self.changes.is_empty() || !self.hidden.is_empty()
    }

    fn print(&self) {
        outln!("package    {}", self.name);
        outln!("digest     {}", self.digest);
        outln!("protocol   {} by {}", self.offer.protocol, self.offer.handshake);
        self.stand_ins.iter().for_each(|name| outln!("variable   {name} has a stand-in for its value"));
        for (kind, state) in &self.states {
            let none = List::default();
            let list = self.offer.lists.get(kind).unwrap_or(&none);
            let state = if list.is_empty() && *state == "not accepted yet" { "" } else { *state };
            outln!("{:<18} {:>4}  {}  {state}", kind.words().1, list.len(), list.digest());
            list.items().for_each(|(name, value)| outln!("  {name:<40} {}", Digest::of(canonical(value))));
        }
        self.changes.iter().flat_map(Change::lines).for_each(|line| outln!("{line}"));
        self.hidden.iter().for_each(|line| outln!("! {line}"));
    }

    fn json(&self) -> Value {
        let list = |(kind, state): &(Kind, &str)| {
            let none = List::default();
            let list = self.offer.lists.get(kind).unwrap_or(&none);
            let item = |(name, value): (&str, &Value)| json!({"name": name, "digest": Digest::of(canonical(value)), "is": value});
            let items: Vec<Value> = list.items().map(item).collect();
            (kind.member().to_owned(), json!({"digest": list.digest(), "state": state, "items": items}))
        };
        let changes: Vec<String> = self.changes.iter().flat_map(Change::lines).collect();
        json!({
            "name": self.name, "digest": self.digest, "handshake": self.offer.handshake, "protocol": self.offer.protocol,
            "server": self.offer.server, "certified": self.certified, "stand_ins": self.stand_ins,
            "lists": self.states.iter().map(list).collect::<serde_json::Map<_, _>>(),
            "changes": changes, "hidden": self.hidden,
        })
    }
}
