//! What the audit log learns of a run, gathered as the story goes.

use bundle::{Certificates, Denied, Grant, Manifest, PackageClass, Signer, Subprocess};
use distribution::Resolved;
use runtime::journal::{Announced, Ending, Journal, JournalError, Ticket};
use runtime::system;
use runtime::{HostInterpreter, Report, Watched};
use serde_json::{Map, Value, json};
use ulid::Ulid;

use crate::handshake::{Pins, Warning};
use crate::pins;
use crate::relay::Session;
use crate::verdict::Verdict;

/// The begin entry in the making.
#[derive(Debug)]
pub struct Record {
    fields: Map<String, Value>,
    announced: Option<Announced>,
    ticket: Option<Ticket>,
    /// What the relay read of the session, for whoever has to answer the client.
    pub session: Option<Session>,
}

impl Record {
    /// A run of the reference as typed, by this process's caller.
    pub fn new(reference: &str) -> Record {
        let parent = system::parent();
        let program = parent.and_then(system::program_of);
        let mut record = Record { fields: Map::new(), announced: None, ticket: None, session: None };
        record.set("host", json!(system::host_name()));
        record.set("user", json!(system::user()));
        record.set("pid", json!(std::process::id()));
        record.set("caller", json!({"pid": parent, "program": program}));
        record.set("smcp", json!(env!("CARGO_PKG_VERSION")));
        record.set("reference", json!(reference));
        record
    }

    /// What the reference stands for.
    pub fn resolved(&mut self, resolved: &Resolved) {
        self.set("name", json!(resolved.name));
        self.set("digest", json!(resolved.descriptor.digest));
        self.set("manifest_digest", json!(resolved.manifest_descriptor.digest));
    }

    /// Of what it was made, where it says so.
    pub fn made_of(&mut self, manifest: &Manifest) {
        if let Some(source) = &manifest.source {
            self.set("source", json!(source));
        }
    }

    /// What policy says of the package.
    pub fn judged(&mut self, verdict: &Verdict) {
        let standing = &verdict.judgement.standing;
        self.set("level", json!(standing.level));
        self.set("score", json!(standing.score));
        self.set("origin", json!(standing.origin.map(PackageClass::word)));
        self.set("certifier", json!(standing.certifier.as_ref().map(Signer::to_string)));
        self.set("signers", standing.signers.iter().map(Signer::to_string).collect());
        let sources: Vec<_> = verdict.policy.sources().iter().map(ToString::to_string).collect();
        self.set("policy", json!({"verdict": "granted", "sources": sources}));
    }

    /// That a run is denied, for which reasons.
    pub fn denied(&mut self, denied: &Denied) {
        if let Some(policy) = self.fields.get_mut("policy") {
            policy["verdict"] = json!("denied");
            policy["reasons"] = denied.reasons.iter().map(|reason| reason.what.as_str()).collect();
        }
    }

    /// The warning that was due, where one was.
    pub fn warned(&mut self, warning: Option<&Warning>) {
        self.set("warning", json!(warning.map(|warning| &warning.reason)));
    }

    /// What its lists are held to, where they are.
    pub fn pinned(&mut self, pins: Option<&Pins>) {
        if let Some(pins) = pins {
            self.set("pins", pins::recorded(pins));
        }
    }

    /// What the run was granted. Names of variables, never values.
    pub fn granted(&mut self, grant: &Grant) {
        self.set("grants", grants(grant));
        self.set("withheld", json!(grant.withheld));
        self.set("limits", json!(Watched::from(&grant.limits)));
    }

    /// Whose certificates it got, where it needed some that its package does not bring.
    pub fn trusts(&mut self, certificates: Option<&Certificates>) {
        self.set("certificates", json!(certificates.map(|certificates| &certificates.from)));
    }

    /// Which interpreter runs the server: the package's own, or one of this machine.
    pub fn runs_by(&mut self, host: Option<&HostInterpreter>) {
        self.set(
            "interpreter",
            host.map_or(json!("package"), |host| json!({"host": host.program, "mounts": host.mounts})),
        );
    }

    /// What the cage enforces, as measured, and by which kind of cgroup.
    pub fn enforced(&mut self, report: &Report, cgroup: &str) {
        self.set("tier", json!(report.tier()));
        self.set("layers", json!(report));
        self.set("cgroup", json!(cgroup));
    }

    /// Whether its calls are recorded, where that was asked for.
    pub fn recorded(&mut self, recorded: Option<Result<(), &str>>) {
        if let Some(recorded) = recorded {
            self.set("recorded", recorded.map_or_else(|why| json!(format!("absent: {why}")), |()| json!("full")));
        }
    }

    /// Does what can be done for the begin entry before all is known that stands in it. Where that fails, [`Record::begin`]
    /// will.
    pub fn announce(&mut self, journal: &Journal, run: Ulid) {
        self.announced = journal.announce(run).ok();
    }

    /// Writes the begin entry.
    ///
    /// # Errors
    /// Where it cannot be written: the server must not start.
    pub fn begin(&mut self, journal: &Journal, run: Ulid) -> Result<&Ticket, JournalError> {
        let announced = self.announced.take().map_or_else(|| journal.announce(run), Ok)?;
        Ok(self.ticket.insert(journal.begin(announced, &self.fields)?))
    }

    /// Writes the end entry, and before it the begin entry of a run that never came to it.
    ///
    /// # Errors
    /// Where one of them cannot be written.
    pub fn close(mut self, journal: &Journal, run: Ulid, ending: &Ending) -> Result<(), JournalError> {
        if self.ticket.is_none() {
            self.begin(journal, run)?;
        }
        self.ticket.take().map_or(Ok(()), |ticket| journal.end(ticket, ending))
    }

    fn set(&mut self, key: &str, value: Value) {
        self.fields.insert(key.into(), value);
    }
}

/// A grant as the audit log and `info` have it. Names of variables, never values.
pub fn grants(grant: &Grant) -> Value {
    let subprocess = match &grant.subprocess {
        Subprocess::Denied => json!(false),
        Subprocess::AllowedAny => json!(true),
        Subprocess::AllowedPaths(paths) => json!(paths),
    };
    let env: Vec<&str> = grant.env.iter().map(|(name, _)| name.as_str()).collect();
    json!({
        "mounts": grant.mounts,
        "denied": grant.denied,
        "env": env,
        "subprocess": subprocess,
        "network": grant.egress,
    })
}
