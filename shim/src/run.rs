//! `smcp run`: the whole story of a run, from a name to an exit code.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bundle::policy::{Channel, Policy};
use bundle::{Access, parse_count, parse_duration, parse_env_file, parse_millicores, parse_size};
use bundle::{
    CallerEnv, FlagError, Imported, LimitRequest, MountFlag, NetworkFlags, OutboundError, Package, Request,
    SubprocessFlag, UnitError, judge,
};
use distribution::{Mode, Network, Pending, Reference, Store, configure, resolve};
use runtime::egress::Proxies;
use runtime::journal::{self, Ending, Journal};
use runtime::system;
use runtime::{
    Ahead, Caller, HostInterpreter, Identity, Layer, Plan, Recording, Refusal, Remains, Report, Signals, Status, Tier,
    UserFlag,
};
use ulid::Ulid;

use crate::accept::{self, Acceptance};
use crate::answer::{PATIENCE, answer};
use crate::asking::{About, Asking};
use crate::bring::{Bring, Wanted, held};
use crate::bundled::Recorded;
use crate::calls::Calls;
use crate::cli;
use crate::exit::{self, Failure};
use crate::export;
use crate::handshake::{Channels, Due, Duties, Handshake, Pins, Warning, Why};
use crate::listing::{self, Named};
use crate::pins::{self, Keeper, Place};
use crate::progress::is_ci;
use crate::questioner::{Questioner, Questions};
use crate::record::Record;
use crate::redact::Texts;
use crate::relay::{self, Client, Way};
use crate::ring::Ring;
use crate::scan::Scan;
use crate::secrets::{self, SecretFlag};
use crate::settings::Settings;
use crate::show;
use crate::test::Session;
use crate::verdict::Verdict;
use crate::witness::Witness;
use crate::words::Words;

/// Runs a server and returns smcp's exit code. Whatever happens inside, the audit log gets one begin and one end entry;
/// where it cannot be written, nothing runs.
pub fn run(typed: &cli::Run, settings: Result<Settings, Failure>, early: Option<Early>) -> u8 {
    let run = early.as_ref().map_or_else(journal::new_run, |early| early.run);
    run_as(typed, settings, run, early, Errand::Client)
}

/// What a run is for.
pub enum Errand<'s> {
    /// Its client.
    Client,
    /// The same, and what the server names in its calls is recorded.
    Learn,
    /// To see what it offers.
    Scan(&'s mut Scan),
    /// To see whether it does as expected.
    Test(&'s mut Session),
    /// None: its cage is written into a directory.
    #[cfg_attr(windows, expect(dead_code, reason = "bundles are for runtimes of Linux"))]
    Bundle(&'s Path),
}

impl Errand<'_> {
    /// What the server is asked, where smcp is its client.
    fn questions(&mut self) -> Option<Questions> {
        match self {
            Errand::Client | Errand::Learn | Errand::Bundle(_) => None,
            Errand::Scan(_) => Some(Questions::default()),
            Errand::Test(session) => Some(std::mem::take(&mut session.questions)),
        }
    }
}

/// The same for a run that has its id already, and may be for something else.
pub fn run_as(
    typed: &cli::Run,
    settings: Result<Settings, Failure>,
    run: Ulid,
    early: Option<Early>,
    errand: Errand<'_>,
) -> u8 {
    let started = Instant::now();
    // A run that a broken configuration stops is recorded at the default place.
    let recorded_by = settings.as_ref().map_or_else(|_| Settings::defaults(), Settings::clone);
    let journal = match recorded_by.journal() {
        Ok(journal) => journal,
        Err(error) => return failed(&error.into(), is_answered(typed)),
    };
    journal.end_lost();
    let mut record = Record::new(typed.reference());
    let result = settings.and_then(|settings| story(typed, &settings, &journal, run, early, errand, &mut record));
    // What is left of the cage goes last: the kernel takes the namespaces down meanwhile.
    let (result, _remains) = match result {
        Ok((ending, remains)) => (Ok(ending), remains),
        Err(failure) => (Err(failure), None),
    };
    let session = record.session.take();
    let ending = match &result {
        Ok(ending) => ending.clone(),
        Err(failure) => failure.ending(),
    };
    if let Err(error) = record.close(&journal, run, &ending.clone().lasted(started.elapsed())) {
        return failed(&error.into(), is_answered(typed));
    }
    let denied = ending.egress.as_ref().map_or(0, |egress| egress.refused.len());
    show::denied(run, denied);
    let failure = match result {
        Ok(Ending { unmasked: Some(path), .. }) => exit::unmasked(&path),
        Ok(Ending { limit: Some(limit), .. }) => limit.into(),
        Ok(Ending { exit, error: Some(error), .. }) => Failure::new(exit, error),
        Ok(ending) => {
            let unheard = exit::unheard(ending.exit);
            let patience = if ending.cause == "exited" && ending.exit != exit::OK { PATIENCE } else { Duration::ZERO };
            if let Some(session) = session {
                answer(Some(session), &unheard, patience);
            }
            return ending.exit;
        }
        Err(failure) if session.is_none() => return failed(&failure, is_answered(typed)),
        Err(failure) => failure,
    };
    let code = failure.print();
    if session.is_some() {
        answer(session, &failure, PATIENCE);
    }
    code
}

/// Whether a client is told why its server did not start.
fn is_answered(typed: &cli::Run) -> bool {
    !typed.dry_run && typed.relay != Some(cli::Relay::Direct)
}

/// Tells of a run that came to no server, also the client that waits for one.
pub fn failed(failure: &Failure, is_answered: bool) -> u8 {
    let code = failure.print();
    if is_answered {
        answer(None, failure, PATIENCE);
    }
    code
}

/// The cage process of a run, split off before the command line is read in full: it enters its namespaces while that is
/// done and the package is looked up.
pub struct Early {
    run: Ulid,
    identity: Identity,
    ahead: Result<Ahead, Refusal>,
}

impl Early {
    /// Splits it off where there will be a run whose server is who it is by default. Where the command line turns out to be
    /// wrong, its end is that of this value.
    pub fn of(arguments: &[OsString]) -> Option<Early> {
        let otherwise = |word: &OsString| {
            let word = word.as_encoded_bytes();
            word.starts_with(b"--user")
                || word.starts_with(b"--bundle")
                || [b"--dry-run".as_slice(), b"--help", b"-h"].contains(&word)
        };
        if arguments.get(1).is_none_or(|command| command != "run") || arguments.iter().any(otherwise) {
            return None;
        }
        let run = journal::new_run();
        let identity = Identity::of_caller(&Caller::of_this_process(), UserFlag::Default, run.0);
        let ahead = Ahead::split(&identity, run);
        Some(Early { run, identity, ahead })
    }
}

/// Tells of a command line that is wrong, and records it where it was to be a run. The exit code is 0 for `--help` and
/// `--version`, else 2.
pub fn usage(arguments: &[OsString], error: &clap::Error) -> u8 {
    let _ = error.print();
    if !error.use_stderr() {
        return exit::OK;
    }
    if arguments.get(1).is_some_and(|command| command == "run") {
        let settings = Settings::read(None).unwrap_or_else(|_| Settings::defaults());
        let wrong = error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let failure = Failure::new(exit::USAGE, wrong);
        let ending = failure.ending();
        let recorded =
            settings.journal().and_then(|journal| Record::new("").close(&journal, journal::new_run(), &ending));
        if let Err(error) = recorded {
            return Failure::from(error).print();
        }
        answer(None, &failure, PATIENCE);
    }
    exit::USAGE
}

/// `Reference → Resolved → Verified<Blob> → Manifest → Grant → Bundle → Plan → Cage → Exit`.
fn story(
    typed: &cli::Run,
    settings: &Settings,
    journal: &Journal,
    run: Ulid,
    early: Option<Early>,
    mut errand: Errand<'_>,
    record: &mut Record,
) -> Result<(Ending, Option<Remains>), Failure> {
    let began = Instant::now();
    let questions = errand.questions();
    if typed.json && !typed.dry_run && !matches!(errand, Errand::Test(_)) {
        return Err(Failure::new(exit::USAGE, "--json: a run prints nothing of its own")
            .hint("with --dry-run, it prints the plan"));
    }
    let mut request = request(typed)?;
    let flags = policy_of_flags(typed)?;
    let (identity, ahead) = match early {
        Some(early) => (early.identity, Some(early.ahead?)),
        None => {
            let caller = Caller::of_this_process();
            let identity = Identity::of_caller(&caller, user(typed, &caller)?, run.0);
            let ahead = if typed.dry_run { None } else { Some(Ahead::split(&identity, run)?) };
            (identity, ahead)
        }
    };
    let network = network(typed, settings);
    let store = Store::open(&settings.cache)?;
    // smcp itself waits to the end.
    let until = until(typed, settings, began).filter(|_| questions.is_none());
    let mut signals = None;
    let named = listing::named(typed.reference(), &store, network, settings, until, &mut signals)?;
    let Named { reference, network, listed } = named;
    let mut asking = Asking::new(&network, signals, || About {
        reference: reference.clone(),
        registry: typed.registry.clone(),
        mode: network.mode,
        settings: settings.clone(),
        journal: journal.clone(),
        run,
        began,
        until,
        is_answered: is_answered(typed),
    });
    let resolved = asking.get(|| resolve(&reference, &store, &network))?;
    record.resolved(&resolved);
    show::stale(&resolved);
    let pending = Pending::new(&resolved, &store)?;
    let image = asking.get(|| configure(&resolved, &store, &network))?;
    let mut package = Package::read(&image)?;
    listing::apply(listed.as_ref(), &mut package, &mut request)?;
    record.made_of(&package.manifest);
    let flags = if let Errand::Scan(_) = errand { Scan::policy(flags) } else { flags };
    let mut verdict =
        asking.get(|| Verdict::of(&resolved, &store, &package, &reference, &network, settings, flags.clone()))?;
    let mut signals = asking.done();
    let acceptance = if typed.locked {
        accept::locked(&mut verdict, &resolved, &package)?;
        Acceptance::Known
    } else if let Errand::Scan(_) = errand {
        Acceptance::Known
    } else {
        Acceptance::of(&mut verdict, &package, settings)?
    };
    record.judged(&verdict);
    verdict.judgement.warnings.iter().for_each(|warning| show::warn(warning));
    let mut caller = caller_env(settings, &identity, &package, &reference, &network)?;
    match &mut errand {
        Errand::Client | Errand::Learn | Errand::Bundle(_) => {}
        Errand::Scan(scan) => {
            caller.states = scan.states(settings)?;
            scan.stand_in(&mut request, &package);
        }
        Errand::Test(session) => caller.states = session.states(settings)?,
    }
    let mut grant =
        judge(&package, &request, &verdict.bounds(settings), &caller).inspect_err(|denied| record.denied(denied))?;
    grant.egress.observed = matches!(errand, Errand::Learn);
    if !typed.dry_run {
        acceptance.settle(&verdict, &package, settings)?;
    }
    grant.withheld.iter().for_each(show::withheld);
    grant.notes.iter().for_each(|note| show::warn(note));
    record.granted(&grant);
    let secrets = secrets::of_run(typed, &request, &package, &grant);
    // By what it is made would be too much for a model.
    let warning = warning(resolved.name.split('?').next().unwrap_or(&resolved.name), &verdict);
    record.warned(warning.as_ref());
    ask_to_go_on(typed, warning.as_ref())?;
    let bundle = match held(&package, &store)? {
        Some(bundle) => bundle,
        None => {
            let signals = match signals {
                Some(ref signals) => signals,
                None => signals.insert(take_signals()?),
            };
            let (registry, offline, store) = (typed.registry.as_deref(), typed.offline, &store);
            let (reference, name) = (resolved.reference.clone(), resolved.name.clone());
            let what = Wanted::Image(&resolved);
            Bring { what, reference, name, store, settings, registry, offline, until }.to_its_end(Some(signals))?;
            held(&package, store)?.ok_or_else(|| Failure::new(exit::RESOLVE, "the package left the store again"))?
        }
    };
    pending.keep()?;
    let grant = grant.with_certificates_for(bundle.path());
    record.trusts(grant.certificates.as_ref());
    let host = host_interpreter(&package)?;
    record.runs_by(host.as_ref());
    if let Some(host) = &host {
        keep_apart(&grant.denied, &host.mounts)?;
    }
    let plan = Plan::new(&grant, bundle.path().to_owned(), identity, host.as_ref());
    runtime::useless_programs(&plan).iter().for_each(|why| show::warn(&format!("--allow-subprocess={why}")));
    let Some(mut ahead) = ahead else {
        if let Errand::Bundle(directory) = errand {
            let cwd = &caller.cwd;
            let variables = request.env.iter().map(|flag| &flag.name);
            let variables =
                variables.chain(package.manifest.env.iter().map(|variable| &variable.name)).cloned().collect();
            let recorded = Recorded::of(typed, &plan, &variables, cwd);
            export::write(&plan, &resolved, &recorded, directory, &store, &network)?;
            return Ok((Ending { cause: "bundle", ..Ending::default() }, None));
        }
        show::plan(&plan, typed.json);
        return Ok((Ending { cause: "dry-run", ..Ending::default() }, None));
    };
    runtime::make_states(&plan).map_err(|(path, why)| {
        Failure::new(exit::CAGE, format!("the state directory {} cannot be made: {why}", path.display()))
            .hint("free the disk or make the directory writable, or name another by XDG_STATE_HOME")
    })?;
    let signals = signals.map_or_else(take_signals, Ok)?;
    let least = least_tier(typed, settings)?;
    let proxies = if plan.egress.is_empty() { Proxies::none() } else { settings.proxies()? };
    let asks_for_direct = typed.relay.unwrap_or(settings.relay) == cli::Relay::Direct;
    let pins = match questions {
        Some(_) => None,
        None => pins::of_run(&verdict, &resolved, &package, settings, asks_for_direct)?,
    };
    let (place, pins) = pins.unzip();
    record.pinned(pins.as_ref());
    let audits_calls = typed.audit_calls || settings.audit_calls;
    let way = match questions {
        Some(_) => Way::Filter(Box::default()),
        None => way(asks_for_direct, &verdict, warning.as_ref(), pins.clone(), audits_calls)?,
    };
    let recording = if let Errand::Learn = errand { Recording::Calls } else { Recording::Nothing };
    if let Way::Direct = way {
        ahead.direct();
    }
    let ordered = ahead.order(&plan, recording)?;
    record.announce(journal, run);
    let cage = ordered.prepare(&plan, &settings.private(), least, &signals, proxies)?;
    record.enforced(cage.report(), cage.cgroup());
    record.recorded(cage.recorded());
    require(cage.report(), least)?;
    let ticket = record.begin(journal, run)?;
    let mut notes = ticket.notes(journal);
    let texts = || Texts::without(secrets.clone());
    let keeper = place.zip(pins).map(|(place, pins)| Keeper::new(place, &pins, ticket.notes(journal), texts()));
    let of_calls = audits_calls.then(|| (ticket.notes(journal), texts()));
    let (mut of_refusals, mut last_texts) = (texts(), texts());
    let cage = cage.start(ticket, Box::new(move |refused| notes.denied(&of_refusals.refusal(refused))))?;
    let witness = Witness { keeper, calls: of_calls.map(|(notes, texts)| Calls::new(notes, texts)) };
    let words = Words::new(secrets, Some(Ring::new(&settings.state, run))).on_stderr();
    let asking = questions.map(Questioner::start).transpose()?;
    let client = asking.as_ref().map_or_else(Client::of_this_process, Questioner::client);
    let mut passed = relay::pass(cage, &signals, plan.limits.timeout(), way, words, witness, client)
        .map_err(|why| Failure::new(exit::CAGE, format!("the relay failed: {why}")))?;
    record.session = passed.session.take().filter(|_| asking.is_none());
    let (mut ending, remains) = passed.ending(&plan)?;
    last_texts.ending(&mut ending);
    match (errand, asking) {
        (Errand::Scan(scan), Some(asking)) => {
            let place = Place::of(settings, &verdict, &resolved, &package);
            scan.end(asking.end(), &verdict, &resolved, &place, run, &mut ending)?;
        }
        (Errand::Test(session), Some(asking)) => session.end(asking.end(), &resolved, &mut ending),
        _ => {}
    }
    Ok((ending, Some(remains)))
}

/// Until when whoever started smcp waits for a package that has to be fetched: a client shows nobody how far it is.
fn until(typed: &cli::Run, settings: &Settings, began: Instant) -> Option<Instant> {
    let by_a_client = [system::stdin(), system::stdout()].into_iter().all(relay::is_of_a_client);
    (by_a_client && !typed.dry_run && !is_ci()).then(|| began + settings.pull_patience)
}

/// From here on the signals that end a run wait to be read.
///
/// # Errors
/// Of code 125, where the kernel refuses.
pub fn take_signals() -> Result<Signals, Failure> {
    Signals::take().map_err(|why| Failure::new(exit::CAGE, format!("signals cannot be read: {why}")))
}

/// The warning that policy makes due.
fn warning(name: &str, verdict: &Verdict) -> Option<Warning> {
    let unscored = verdict.policy.unscored().value;
    Warning::of(name, &verdict.judgement.standing, verdict.policy.warning_threshold().value, unscored)
}

/// Asks a person on a terminal whether a run goes on whose package has a low score, of which policy has told by now. A
/// client is no person: it has the warning.
fn ask_to_go_on(typed: &cli::Run, warning: Option<&Warning>) -> Result<(), Failure> {
    let is_low = warning.is_some_and(|warning| warning.why == Why::Low);
    let on_a_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !is_low || typed.trust || typed.dry_run || !on_a_terminal || accept::ask("Run it all the same?") {
        return Ok(());
    }
    Err(Failure::new(exit::DENIED, "the run was answered by no").hint("--trust asks no question"))
}

/// The ways of a warning that policy names.
fn channels(verdict: &Verdict) -> Channels {
    let named = verdict.policy.warning.channels().value;
    let has = |channel| named.contains(&channel);
    Channels {
        instructions: has(Channel::Instructions),
        tools: has(Channel::Tools),
        result: has(Channel::Result),
        notification: has(Channel::Notification),
    }
}

/// How bytes pass: through the filter, with what is due, or for whoever `asks` for that directly. Then a package without a
/// score is warned of in the audit log alone; a low score, rules on tools, pins and a record of calls take the filter all the same.
fn way(
    asks: bool,
    verdict: &Verdict,
    warning: Option<&Warning>,
    pins: Option<Pins>,
    calls: bool,
) -> Result<Way, Failure> {
    let due = warning.map(|warning| {
        let otherwise = channels(verdict);
        let channels = if warning.why == Why::Unscored { otherwise.of_unscored() } else { otherwise };
        Due { text: warning.text.clone(), channels, otherwise }
    });
    let rules = &verdict.policy.tools;
    let tools = (!rules.allow.is_empty() || !rules.deny.is_empty()).then(|| rules.clone());
    let must_filter =
        tools.is_some() || pins.is_some() || calls || warning.is_some_and(|warning| warning.why == Why::Low);
    if asks && must_filter {
        show::warn(
            "--relay direct is not followed: a warning of a low score, policy.tools and --audit-calls need the filter",
        );
    }
    if !asks || must_filter {
        let notifies = channels(verdict).notification;
        return Ok(Way::Filter(Box::new(Handshake::new(Duties { warning: due, tools, pins, notifies, calls }))));
    }
    system::DIRECT.map_err(|why| {
        Failure::new(exit::USAGE, format!("--relay direct: {why}")).hint("use --relay filter, or leave it out")
    })?;
    let (stdin, stdout) = (system::stdin(), system::stdout());
    match [("input", stdin), ("output", stdout)].into_iter().find(|(_, fd)| !relay::is_of_a_client(*fd)) {
        None => Ok(Way::Direct),
        Some((name, _)) => {
            let what = format!("--relay direct: standard {name} is neither a pipe nor a socket");
            Err(Failure::new(exit::USAGE, what)
                .hint("files and terminals are not passed into a cage; use --relay filter"))
        }
    }
}

/// The interpreter of this machine that a package asks for which brings none.
fn host_interpreter(package: &Package) -> Result<Option<HostInterpreter>, Failure> {
    let Some(asked) = &package.manifest.runtime else { return Ok(None) };
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let all = std::env::split_paths(&path).chain(bundle::build::pythons_of_uv());
    let search = std::env::join_paths(all).unwrap_or(path);
    HostInterpreter::find(&asked.interpreter, &search)
        .map(Some)
        .map_err(|missing| Failure::new(exit::NOT_FOUND, missing.to_string()).hint(missing.hint()))
}

/// What is denied cannot be what the host's interpreter needs.
fn keep_apart(denied: &[PathBuf], interpreter: &[PathBuf]) -> Result<(), Failure> {
    let both = denied.iter().flat_map(|path| interpreter.iter().map(move |needed| (path, needed)));
    let mut both = both.filter(|(path, needed)| path.starts_with(needed) || needed.starts_with(path));
    match both.next() {
        None => Ok(()),
        Some((path, needed)) => Err(Failure::new(
            exit::USAGE,
            format!("--deny {}: the interpreter of this machine needs {}", path.display(), needed.display()),
        )
        .hint("a package that was built without `--runtime host` brings its own")),
    }
}

/// Where interpreters are looked for when the caller has no PATH, as clients on a desktop do.
const DEFAULT_PATH: &str = if cfg!(target_os = "macos") {
    "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin"
} else {
    "/usr/local/bin:/usr/bin:/bin"
};

/// The least tier that is acceptable: a flag makes the configuration's stricter, never weaker.
fn least_tier(typed: &cli::Run, settings: &Settings) -> Result<Tier, Failure> {
    match typed.tier.map(Tier::try_from) {
        None => Ok(settings.least_tier()),
        Some(Ok(tier)) if tier > Tier::Zero => Ok(tier.max(settings.least_tier())),
        Some(_) => Err(Failure::new(exit::USAGE, "--tier: there are tiers 1, 2 and 3")),
    }
}

/// Judges what was measured: the tier that it comes to, and the layers that every tier has. A run of tier 1 is told.
pub fn require(report: &Report, least: Tier) -> Result<(), Failure> {
    let hint = "`smcp doctor` shows what this machine enforces, `smcp doctor --fix` how to get more";
    let lost = Layer::ALL.into_iter().find_map(|layer| match (layer, report.status(layer)) {
        (_, Some(Status::Full)) => None,
        // Nothing of the network is granted.
        (Layer::Egress, None) => None,
        (_, None) => Some(format!("{layer} was not measured")),
        // They make the tier.
        (Layer::Cgroup | Layer::Landlock, _) => None,
        (layer, _) if layer.is_of_namespaces() => None,
        // Limits alone were accepted.
        (Layer::Seatbelt | Layer::Egress, _) if least == Tier::Zero => None,
        // Where namespaces are missing the guard counts, and a set that nothing can use is left; a filter around this one
        // answers in its place.
        (Layer::Capabilities | Layer::ResourceLimits | Layer::Seccomp, Some(Status::Partial(_))) => None,
        // Of tier 0 is known that it keeps nothing apart, where a platform has no more.
        (Layer::JobObject, Some(Status::Partial(_))) => None,
        (Layer::RestrictedToken | Layer::LowIntegrity, Some(_)) => None,
        // A machine without IPv6 has nothing that it could reach by it.
        (Layer::Egress, Some(Status::Partial(_))) => None,
        (_, Some(status)) => Some(format!("{layer} is {status}")),
    });
    if let Some(lost) = lost {
        return Err(Failure::new(exit::CAGE, format!("the cage is not whole: {lost}")).hint(hint));
    }
    let tier = report.tier();
    let missing = || {
        // All namespaces are missing for one reason; Landlock has one of its own.
        let of_landlock = |(layer, _): &(Layer, &Status)| *layer == Layer::Landlock;
        let first = report.missing().find(|missing| !of_landlock(missing));
        let named = first.into_iter().chain(report.missing().find(of_landlock));
        let named: Vec<_> = named.map(|(layer, status)| format!("{layer} is {status}")).collect();
        if named.is_empty() { String::new() } else { format!(": {}", named.join("; ")) }
    };
    if tier < least {
        let what = format!("the cage is of tier {tier}, and {least} is the least acceptable{}", missing());
        return Err(Failure::new(exit::CAGE, what).hint(hint));
    }
    if tier == Tier::Zero {
        show::warn(&format!(
            "the cage is of tier 0 of 3: the server reaches every file and host of its user{}",
            missing()
        ));
    }
    if tier == Tier::One {
        show::warn(&format!("the cage is of tier 1 of 3{}", missing()));
        if let Some(status @ Status::Partial(_)) = report.status(Layer::Egress) {
            show::warn(&format!("egress is {status}"));
        }
    }
    Ok(())
}

/// What the flags say of policy, which is stricter than the configuration's or means nothing.
fn policy_of_flags(typed: &cli::Run) -> Result<Policy, Failure> {
    Policy::of_flags(typed.min_cert_level.as_deref(), typed.warning_threshold.as_deref())
        .map_err(|why| Failure::new(exit::USAGE, why))
}

/// What was typed, as what it means.
fn request(typed: &cli::Run) -> Result<Request, Failure> {
    let unit = |flag: &'static str| move |error: UnitError| in_flag(flag, error.into());
    let mut mounts = Vec::new();
    for text in &typed.mount {
        mounts.push(text.parse().map_err(|why: FlagError| in_flag("--mount", why.into()))?);
    }
    let same_path = |flag, paths: &[PathBuf], access| {
        let flags = paths.iter().map(|path| MountFlag::same_path(flag, path.clone(), access));
        flags.collect::<Vec<_>>()
    };
    mounts.extend(same_path("--allow-read", &typed.allow_read, Access::Ro));
    mounts.extend(same_path("--allow-write", &typed.allow_write, Access::Rw));
    let mut env = Vec::new();
    for file in &typed.env_file {
        let fail =
            |why: &dyn std::fmt::Display| Failure::new(exit::USAGE, format!("--env-file {}: {why}", file.display()));
        let text = crate::settings::read_small(file).map_err(|why| fail(&why))?;
        env.extend(parse_env_file(&text).map_err(|why| fail(&why))?);
    }
    for text in &typed.env {
        env.push(text.parse().map_err(|why: FlagError| in_flag("--env", why.into()))?);
    }
    for text in &typed.secret {
        env.push(SecretFlag::read(text)?.value(typed.dry_run)?);
    }
    let subprocess = match typed.allow_subprocess.as_slice() {
        [] => SubprocessFlag::None,
        paths if paths.iter().any(String::is_empty) => SubprocessFlag::Any,
        paths => SubprocessFlag::Paths(paths.iter().map(PathBuf::from).collect()),
    };
    let limits = LimitRequest {
        memory: typed.memory.as_deref().map(parse_size).transpose().map_err(unit("--memory"))?,
        cpu: typed.max_cpu.as_deref().map(parse_millicores).transpose().map_err(unit("--max-cpu"))?,
        cpu_time: typed.cpu_time.as_deref().map(parse_duration).transpose().map_err(unit("--cpu-time"))?,
        pids: typed.pids.as_deref().map(parse_count).transpose().map_err(unit("--pids"))?,
        fds: typed.fds.as_deref().map(parse_count).transpose().map_err(unit("--fds"))?,
        timeout: typed.timeout.as_deref().map(parse_duration).transpose().map_err(unit("--timeout"))?,
    };
    let least = [
        ("--memory", limits.memory, LEAST_MEMORY),
        ("--pids", limits.pids.map(u64::from), LEAST_PIDS),
        ("--fds", limits.fds.map(u64::from), LEAST_FDS),
    ];
    if let Some((flag, _, least)) =
        least.into_iter().find(|(_, asked, least)| asked.is_some_and(|asked| asked < *least))
    {
        return Err(Failure::new(exit::USAGE, format!("{flag}: no cage can be built with less than {least}"))
            .hint("servers on node or python need 64 processes and 128M at the least"));
    }
    let network = network_flags(typed)?;
    let denied = typed.deny.clone();
    let state = typed.state.as_deref().map(str::parse).transpose();
    let state = state.map_err(|why: FlagError| in_flag("--state", why.into()))?;
    let mut request = Request {
        mounts,
        denied,
        state,
        cwd: typed.cwd.clone(),
        env,
        composed: Vec::new(),
        subprocess,
        network,
        limits,
        args: typed.args().to_vec(),
        listed: BTreeSet::new(),
    };
    for text in &typed.permissions {
        let (file, name) = text.rsplit_once('#').map_or((text.as_str(), None), |(file, name)| (file, Some(name)));
        let fail = |why: &dyn std::fmt::Display| Failure::new(exit::USAGE, format!("--permissions {file}: {why}"));
        let read = crate::settings::read_small(file.as_ref()).map_err(|why| fail(&why))?;
        let read = String::from_utf8(read).map_err(|why| fail(&why))?;
        let imported = Imported::read(&read, name).map_err(|why| fail(&why).hint(OF_OTHERS))?;
        imported.notes.iter().for_each(|note| show::warn(&format!("--permissions {file}: {note}")));
        imported.add_to(&mut request);
    }
    Ok(request)
}

/// What can be imported.
const OF_OTHERS: &str =
    "it is a permission profile of ToolHive's, or an entry of Docker's MCP catalog; docs/configuration.md has the keys";

fn network_flags(typed: &cli::Run) -> Result<NetworkFlags, Failure> {
    let mut outbound = Vec::new();
    for text in &typed.allow_net {
        outbound.push(text.parse().map_err(|why: OutboundError| in_flag("--allow-net", why.into()))?);
    }
    let port = |text: &String| match text.parse::<u16>() {
        Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(Failure::new(exit::USAGE, format!("--allow-host-port: {text:?} is no port from 1 to 65535"))
            .hint("one port of this machine's loopback; several flags name several")),
    };
    let host_ports = typed.allow_host_port.iter().map(port).collect::<Result<_, _>>()?;
    Ok(NetworkFlags { outbound, host_ports, any: typed.allow_all_net, by_port: typed.net_by_port })
}

/// What the cage itself needs to be built: PID 1 and the server's process, their descriptors, a few pages.
const LEAST_MEMORY: u64 = 16 << 20;
const LEAST_PIDS: u64 = 4;
const LEAST_FDS: u64 = 24;

fn in_flag(flag: &str, failure: Failure) -> Failure {
    Failure { message: format!("{flag}: {}", failure.message), ..failure }
}

fn user(typed: &cli::Run, caller: &Caller) -> Result<UserFlag, Failure> {
    let wrong = |why: &str| Failure::new(exit::USAGE, format!("--user: {why}"));
    match typed.user.as_deref() {
        None => Ok(UserFlag::Default),
        Some(_) if caller.uid != 0 => {
            Err(wrong("only root can choose who the server is").hint("leave it out: the server has your own uid"))
        }
        Some("root") => Ok(UserFlag::Root),
        Some(text) => match text.parse::<u32>() {
            Ok(0) => Err(wrong("0 is root").hint("say --user root")),
            Ok(uid) if uid < u32::MAX => Ok(UserFlag::Uid(uid)),
            _ => Err(wrong(&format!("{text:?} is no user id")).hint("a number, as `id -u NAME` shows it, or root")),
        },
    }
}

fn network(typed: &cli::Run, settings: &Settings) -> Network {
    let mode = if typed.offline {
        Mode::Offline
    } else if typed.refresh {
        Mode::Refresh
    } else {
        Mode::CacheFirst { refresh: settings.refresh }
    };
    settings.network_for(typed.registry.as_deref(), mode, &typed.making)
}

/// What the judgement takes from the caller.
///
/// # Errors
/// Where the working directory cannot be read.
pub fn caller_env(
    settings: &Settings,
    identity: &Identity,
    package: &Package,
    reference: &Reference,
    network: &Network,
) -> Result<CallerEnv, Failure> {
    let cwd = std::env::current_dir()
        .map_err(|why| Failure::new(exit::USAGE, format!("the working directory cannot be read: {why}")))?;
    let mut protected = settings.protected();
    // A server that could write where it comes from could replace itself.
    match reference {
        Reference::OciLayout(layout) => protected.push(cwd.join(&layout.dir)),
        Reference::Directory(path) | Reference::Mcpb(path) => protected.push(cwd.join(path)),
        _ => {}
    }
    Ok(CallerEnv {
        vars: std::env::vars_os().collect(),
        cwd,
        user: identity.user.clone(),
        home: identity.home.clone(),
        states: settings.state.join("servers"),
        family: family(package, reference, network)?,
        protected,
        program: std::env::current_exe().ok(),
    })
}

/// Whose lasting directories a package gets: what its versions share. A manifest's name is its publisher's word, so it counts
/// only among the packages of one layout, which the user put there.
pub fn family(package: &Package, reference: &Reference, network: &Network) -> Result<String, Failure> {
    let family = distribution::family(reference, network)?;
    Ok(match reference {
        Reference::OciLayout(_) => format!("{family}:{}", package.manifest.name),
        _ => family,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What no layer keeps apart is refused by whoever asks for a tier, and accepted by who asks for none, as elsewhere than on Linux
    /// policy may. A limit that is missing is never accepted.
    #[test]
    fn limits_alone_are_accepted_where_no_tier_is_asked_for() {
        let absent = || Status::Absent("failed: the profile is not taken".into());
        let mut report = Report::default();
        for layer in Layer::ALL {
            let is_apart =
                layer.is_of_namespaces() || matches!(layer, Layer::Landlock | Layer::Egress | Layer::Seatbelt);
            report.set(layer, if is_apart { absent() } else { Status::Full });
        }
        report.set(Layer::Seatbelt, absent());
        assert_eq!(report.tier(), Tier::Zero);
        assert!(require(&report, Tier::Zero).is_ok());
        assert!(require(&report, Tier::One).is_err());
        report.set(Layer::Egress, Status::Full);
        assert!(require(&report, Tier::One).is_err());
        for limit in [Layer::Guard, Layer::Descriptors] {
            let mut report = report.clone();
            report.set(limit, absent());
            assert!(require(&report, Tier::Zero).is_err(), "{limit}");
        }
    }
}
