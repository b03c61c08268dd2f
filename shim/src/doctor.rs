//! `smcp doctor`: what this machine enforces, tried just now in a cage like every other, without a server.

use std::path::Path;

use bundle::{Egress, Host, Outbound};
use distribution::Store;
use runtime::egress::Proxies;
use runtime::journal;
use runtime::{
    Advice, Ahead, Caller, Identity, Layer, Plan, Prepared, Recording, Refusal, Report, Signals, Status, Tier,
    UserFlag, advice,
};
use serde_json::json;

use crate::exit::{self, Failure};
use crate::run;
use crate::settings::Settings;
use crate::show::{self, outln};

/// Builds a cage, has it measured from inside and shows what was found. The exit code is that which a run would have.
///
/// # Errors
/// Where this machine cannot build the cage, write the audit log or open the store: as a run would fail.
pub fn doctor(fix: bool, as_json: bool, settings: &Settings) -> Result<(), Failure> {
    let journal = settings.journal()?;
    let store = Store::open(&settings.cache)?;
    let caller = Caller::of_this_process();
    let id = journal::new_run();
    let identity = Identity::of_caller(&caller, UserFlag::Default, id.0);
    let uid = identity.uid;
    let scratch = Scratch::new(store.root())?;
    let signals = Signals::take().map_err(|why| Failure::new(exit::CAGE, format!("signals cannot be read: {why}")))?;
    // What a machine has is shown, also where policy asks for more.
    let least = settings.least_tier().min(Tier::One);
    let prepare = |grant, egress| {
        let plan = Plan { egress, ..Plan::probe(identity.clone(), &scratch.tree, grant) };
        let (private, ahead) = (settings.private(), Ahead::split(&identity, id)?);
        ahead
            .order(&plan, Recording::Nothing)
            .and_then(|ordered| ordered.prepare(&plan, &private, least, &signals, Proxies::none()))
    };
    let Probe { cage, grants, egress } = Probe::of(Some(scratch.grant.as_path()), prepare)?;
    let report = cage.report();
    if as_json {
        show::print_json(&json!({
            "tier": report.tier(),
            "layers": report,
            "cgroup": cage.cgroup(),
            "grants": grants,
            "egress": egress,
            "user": {"caller": caller.uid, "server": uid},
            "audit_log": journal.path(),
            "store": store.root(),
        }));
        return run::require(report, settings.least_tier());
    }
    if fix {
        show_advice(report);
        return Ok(());
    }
    outln!("{:18} {} of 3", "tier", report.tier());
    for layer in Layer::ALL {
        match report.status(layer) {
            _ if layer == Layer::Egress => outln!("{layer:18} {egress}"),
            Some(status) => outln!("{layer:18} {status}"),
            None => outln!("{layer:18} not measured"),
        }
    }
    outln!("{:18} {}", "kind of cgroup", cage.cgroup());
    outln!("{:18} {grants}", "grants");
    outln!("{:18} the server of caller {} is uid {uid}", "user", caller.uid);
    outln!("{:18} {} can be written", "audit log", journal.path().display());
    outln!("{:18} {} can be used", "store", store.root().display());
    run::require(report, settings.least_tier())
}

/// A cage, and what of a run it could not have: a machine may refuse grants alone, as old kernels do to root, or egress,
/// which needs a network namespace.
struct Probe {
    cage: Prepared,
    grants: Status,
    egress: Status,
}

impl Probe {
    /// Tries with both, then with less.
    fn of<'a>(
        grant: Option<&'a Path>,
        prepare: impl Fn(Option<&'a Path>, Egress) -> Result<Prepared, Refusal>,
    ) -> Result<Probe, Refusal> {
        // A name that nobody has, RFC 6761.
        let host = Host::Name("smcp.invalid".into());
        let named = || Egress { outbound: vec![Outbound::new(host.clone(), [])], ..Egress::default() };
        let measured = |cage: &Prepared| match cage.report().status(Layer::Egress) {
            Some(status) => status.clone(),
            None => Status::Absent("it was not measured".into()),
        };
        let absent = |refusal: &Refusal| Status::Absent(refusal.why.clone());
        let both = match prepare(grant, named()) {
            Ok(cage) => return Ok(Probe { egress: measured(&cage), cage, grants: Status::Full }),
            Err(refusal) => refusal,
        };
        let without_egress = match prepare(grant, Egress::default()) {
            Ok(cage) => return Ok(Probe { cage, grants: Status::Full, egress: absent(&both) }),
            Err(refusal) => refusal,
        };
        let grants = absent(&without_egress);
        match prepare(None, named()) {
            Ok(cage) => Ok(Probe { egress: measured(&cage), cage, grants }),
            Err(refusal) => match prepare(None, Egress::default()) {
                Ok(cage) => Ok(Probe { cage, grants, egress: absent(&refusal) }),
                Err(_) => Err(without_egress),
            },
        }
    }
}

/// What would bring more, as lines that a person may type.
fn show_advice(report: &Report) {
    let program = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/smcp".into());
    let all = advice(report, &program);
    if all.is_empty() {
        outln!("# tier {} of 3, and every layer of it is whole: nothing to do", report.tier());
    }
    for Advice { matter, steps } in all {
        outln!("# {matter}");
        steps.iter().for_each(|step| outln!("{step}"));
    }
}

/// A directory for a package's tree and one for a grant, so that their mounts are tried too.
struct Scratch {
    tree: std::path::PathBuf,
    grant: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Scratch {
    fn new(store: &Path) -> Result<Scratch, Failure> {
        let fail = |why: std::io::Error| {
            Failure::new(exit::RESOLVE, format!("no directory can be made in {}: {why}", store.display()))
        };
        let dir = tempfile::tempdir_in(store.join("tmp")).map_err(fail)?;
        let make = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).map(|()| path)
        };
        let (tree, grant) = (make("tree").map_err(fail)?, make("grant").map_err(fail)?);
        Ok(Scratch { tree, grant, _dir: dir })
    }
}
