//! Downloads that take longer than whoever waits for them: the client is told, and they go on (A13, L1).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::acquire::registry;
use crate::command::{Ended, Smcp};
use crate::fake::Fake;
use crate::image::{Built, Image};
use crate::needs;
use crate::patience::{PATIENCE, within};
use crate::place;
use crate::processes::with_word;
use crate::world::{User, World, as_each_user};

as_each_user! {
    a13_a_client_is_told_and_the_download_goes_on,
    a13_the_next_start_says_why_a_download_failed,
    a13_a_registry_that_does_not_answer,
    l1_a_signal_while_a_package_is_looked_up,
    l1_a_download_outlives_whoever_waits_for_it,
    l1_a_download_that_nobody_answers_for_ends_with_its_run,
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
const DISCOVER: &str = r#"{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;

/// A registry that keeps the layer, or its manifests, back until it is told to send it, and whether it is the right one then.
struct Slow {
    fake: Fake,
    keeps: fn(&Built, &str) -> bool,
    image: Built,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Closed,
    Open,
    /// It sends other bytes.
    OpenToALie,
}

impl Slow {
    fn serve() -> Slow {
        Slow::keeping_back(|image, path| path.ends_with(&image.layer.digest))
    }

    fn keeping_back(keeps: fn(&Built, &str) -> bool) -> Slow {
        let image = Image::probe().build();
        let gate = Arc::new((Mutex::new(Gate::Closed), Condvar::new()));
        let (built, of_calls) = (image.clone(), gate.clone());
        let fake = registry(&image, move |call, mut reply| {
            if keeps(&built, &call.path) {
                let (state, changed) = &*of_calls;
                let state = changed.wait_while(state.lock().unwrap(), |state| *state == Gate::Closed).unwrap();
                if *state == Gate::OpenToALie {
                    reply.body[0] ^= 1;
                }
            }
            reply
        });
        Slow { fake, keeps, image, gate }
    }

    fn set(&self, gate: Gate) {
        *self.gate.0.lock().unwrap() = gate;
        self.gate.1.notify_all();
    }

    fn name(&self) -> String {
        format!("{}/test/probe:v1", self.fake.host)
    }

    fn downloads(&self) -> usize {
        self.fake.count("GET", &self.image.layer.digest)
    }

    /// Whether it was asked for what it keeps back.
    fn asked(&self) -> bool {
        self.fake.calls().iter().any(|call| (self.keeps)(&self.image, &call.path))
    }

    /// The processes that fetch from it.
    fn fetchers(&self) -> Vec<(u32, String)> {
        with_word(&self.fake.host).into_iter().filter(|(_, line)| line.starts_with("smcp fetch ")).collect()
    }

    #[track_caller]
    fn await_one_that_is_detached(&self) -> u32 {
        let one = within(PATIENCE, || match &self.fetchers()[..] {
            [(pid, line)] if line.contains(" detached ") && self.asked() => Some(*pid),
            _ => None,
        });
        one.unwrap_or_else(|| panic!("one process was expected: {:#?}", self.fetchers()))
    }

    #[track_caller]
    fn await_none(&self) {
        let none = within(PATIENCE, || self.fetchers().is_empty().then_some(()));
        assert!(none.is_some(), "left: {:#?}", self.fetchers());
    }

    /// Sends what it kept back once this run waits for it too, which gets it then; nobody fetches afterwards.
    #[track_caller]
    fn opens_for(&self, run: Smcp<'_>) {
        let mut waits = run.start();
        let stdin = waits.take_stdin();
        self.set(Gate::Open);
        waits.wait().expect(4);
        drop(stdin);
        self.await_none();
    }
}

/// The file of the lock, while there is one.
fn lock(world: &World) -> Option<PathBuf> {
    let all = fs::read_dir(world.store().join("locks")).expect("the store is there").flatten();
    all.map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"pull-")))
}

fn is_held(lock: &Path) -> bool {
    fs::File::open(lock).expect("the lock is there").try_lock().is_err()
}

/// The one answer that a client got.
#[track_caller]
fn answer(ended: &Ended) -> Value {
    let text = ended.text();
    ended.check(text.lines().count() == 1, "one line was expected on stdout");
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

fn a13_a_client_is_told_and_the_download_goes_on(world: &World) {
    let slow = Slow::serve();
    let name = slow.name();
    let start = |patience: &str| world.smcp(["run", &name, "exit", "4"]).env("MCP_PULL_PATIENCE", patience);
    for (asked, id) in [(INITIALIZE, Value::from(0)), (DISCOVER, "d".into())] {
        let ended = start("1s").told(asked).expect(124);
        let told = answer(&ended);
        ended.check(told["id"] == id && told["error"]["code"] == -32000, "an error for the request was expected");
        assert_eq!(told["error"]["data"]["exit"], 124);
        let message = told["error"]["message"].as_str().unwrap_or_default();
        let hint = format!("smcp pull {name}");
        for word in [&name, "longer than 1s", "goes on in the background", &hint] {
            ended.check(message.contains(word), word);
        }
        ended.explains(&["goes on in the background"]);
        let end = world.last_end();
        assert_eq!((&end["exit"], &end["cause"]), (&124.into(), &"timeout".into()));
        assert!(end["error"].as_str().is_some_and(|error| error.contains("goes on in the background")), "{end}");
        slow.await_one_that_is_detached();
        assert!(is_held(&lock(world).expect("a lock")));
    }
    let fetcher = slow.await_one_that_is_detached();
    // Nothing of its starter's is open in it but pipes that nobody holds any more.
    let root = world.path("");
    let open: Vec<_> = fs::read_dir(format!("/proc/{fetcher}/fd"))
        .unwrap()
        .flatten()
        .flat_map(|fd| fs::read_link(fd.path()))
        .collect();
    let foreign: Vec<_> =
        open.iter().filter(|path| path.starts_with(&root) && !path.starts_with(world.store())).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    slow.opens_for(start("10m"));
    assert_eq!(slow.downloads(), 1);
    assert_eq!(lock(world), None);
    world.smcp(["run", "--offline", &name, "exit", "5"]).run().expect(5);
    // Where it is there, nobody is too late.
    start("1s").run().expect(4);
}

/// The next start tells how the last one ended, and tries again. Who waits for another's download gets its failure.
fn a13_the_next_start_says_why_a_download_failed(world: &World) {
    let slow = Slow::serve();
    let name = slow.name();
    let start = |patience: &str| world.smcp(["run", &name, "exit", "4"]).env("MCP_PULL_PATIENCE", patience);
    start("1s").told(INITIALIZE).expect(124);
    slow.await_one_that_is_detached();
    let mut waits = start("10m").start();
    let stdin = waits.take_stdin();
    slow.set(Gate::OpenToALie);
    let ended = waits.wait().expect(122);
    ended.explains(&[&slow.image.layer.digest, "other bytes arrived"]);
    drop(stdin);
    slow.await_none();
    // That one was told, so nobody is told again.
    let told = "that went on in the background failed";
    let ended = start("10m").run().expect(122);
    ended.check(!ended.stderr().contains(told), "told twice");
    // One that ends when nobody waits.
    slow.set(Gate::Closed);
    start("1s").told(INITIALIZE).expect(124);
    slow.await_one_that_is_detached();
    slow.set(Gate::OpenToALie);
    slow.await_none();
    slow.set(Gate::Open);
    start("10m").run().expect(4).says(&[&name, told, "other bytes arrived"]);
    // One that is killed.
    world.smcp(["cache", "rm", "--all"]).run().ok();
    slow.set(Gate::Closed);
    let before = slow.downloads();
    start("1s").told(INITIALIZE).expect(124);
    within(PATIENCE, || (slow.downloads() > before).then_some(())).expect("it asks for the layer");
    let fetcher = Pid::from_raw(slow.await_one_that_is_detached().cast_signed()).unwrap();
    rustix::process::kill_process(fetcher, Signal::KILL).unwrap();
    slow.await_none();
    slow.set(Gate::Open);
    start("10m").run().expect(4).says(&[told, "was ended before it was done"]);
    let ended = start("10m").run().expect(4);
    ended.check(!ended.stderr().contains(told), "told twice");
}

/// What it stands for is not known in time: another process finds out, and fetches it.
fn a13_a_registry_that_does_not_answer(world: &World) {
    let slow = Slow::keeping_back(|_, path| path.contains("/manifests/"));
    let name = slow.name();
    let start = |patience: &str| world.smcp(["run", &name, "exit", "4"]).env("MCP_PULL_PATIENCE", patience);
    for _ in 0..2 {
        let ended = start("1s").told(INITIALIZE).expect(124);
        let told = answer(&ended);
        let message = told["error"]["message"].as_str().unwrap_or_default();
        ended.check(told["id"] == 0 && message.contains("goes on in the background"), "an answer was expected");
        let end = world.last_end();
        assert_eq!((&end["exit"], &end["cause"]), (&124.into(), &"timeout".into()), "{end}");
        slow.await_one_that_is_detached();
    }
    slow.opens_for(start("10m"));
    assert_eq!((slow.downloads(), lock(world)), (1, None));
    // One that answers with something else.
    world.smcp(["cache", "rm", "--all"]).run().ok();
    slow.set(Gate::Closed);
    start("1s").told(INITIALIZE).expect(124);
    slow.set(Gate::OpenToALie);
    slow.await_none();
    slow.set(Gate::Open);
    start("10m").run().expect(4).says(&[&name, "that went on in the background failed"]);
    // Where the store has an answer, a registry that has none in time does not matter.
    slow.set(Gate::Closed);
    start("1s").run().expect(4);
}

/// It is recorded and answered, and nothing goes on.
fn l1_a_signal_while_a_package_is_looked_up(world: &World) {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let slow = Slow::keeping_back(|_, path| path.contains("/manifests/"));
        let mut running = world.smcp(["run", &slow.name(), "exit", "4"]).start();
        let mut stdin = running.take_stdin();
        std::io::Write::write_all(&mut stdin, format!("{INITIALIZE}\n").as_bytes()).unwrap();
        within(PATIENCE, || slow.asked().then_some(())).expect("it is asked");
        running.signal(signal);
        let ended = running.wait().expect(code);
        let told = answer(&ended);
        ended.check(told["error"]["data"]["cause"] == "terminated", "an answer was expected");
        let end = world.last_end();
        assert_eq!((&end["exit"], &end["cause"]), (&code.into(), &"terminated".into()), "{end}");
        assert!(end["error"].as_str().is_some_and(|error| error.contains("looked up")), "{end}");
        let gone = within(PATIENCE, || with_word(&slow.fake.host).is_empty().then_some(()));
        assert!(gone.is_some(), "left: {:#?}", with_word(&slow.fake.host));
    }
}

/// SIGTERM to smcp, which is answered and recorded; SIGKILL to it, to its client, to its process group, to all of them.
fn l1_a_download_outlives_whoever_waits_for_it(world: &World) {
    let Some(setsid) = needs::program("setsid", "util-linux") else { return };
    let smcp = place::smcp().to_str().expect("UTF-8");
    for end in ["term", "kill", "client", "both", "group hup", "group term", "group kill"] {
        let slow = Slow::serve();
        let name = slow.name();
        let arguments = [smcp, "run", &name, "exit", "4"];
        let mut running = match end {
            "client" | "both" => world.smcp(&arguments[1..]).held_by_a_client().start(),
            group if group.starts_with("group") => world.program(&setsid, arguments).start(),
            _ => world.smcp(&arguments[1..]).start(),
        };
        let mut stdin = running.take_stdin();
        std::io::Write::write_all(&mut stdin, format!("{INITIALIZE}\n").as_bytes()).unwrap();
        slow.await_one_that_is_detached();
        let group = Pid::from_raw(running.pid().cast_signed()).unwrap();
        match end {
            "term" => {
                running.signal(Signal::TERM);
                let ended = running.wait().expect(143);
                let told = answer(&ended);
                let message = told["error"]["message"].as_str().unwrap_or_default();
                ended.check(
                    message.contains("SIGTERM") && message.contains("goes on in the background"),
                    "an answer was expected",
                );
                let last = world.last_end();
                assert_eq!((&last["exit"], &last["cause"]), (&143.into(), &"terminated".into()), "{last}");
            }
            "kill" | "client" | "both" => {
                running.signal(Signal::KILL);
                if end == "both" {
                    let runs = with_word(&slow.fake.host).into_iter().filter(|(_, line)| line.contains(" run "));
                    runs.for_each(|(pid, _)| {
                        let _ = rustix::process::kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
                    });
                }
                running.wait_for_the_process_alone();
                if end == "client" {
                    let ended = within(PATIENCE, || world.audit_text().contains("went away").then_some(()));
                    assert!(ended.is_some(), "its end was expected: {}", world.audit_text());
                }
            }
            group_signal => {
                let signal = match group_signal {
                    "group hup" => Signal::HUP,
                    "group term" => Signal::TERM,
                    _ => Signal::KILL,
                };
                kill_process_group(group, signal).unwrap();
                running.wait_for_the_process_alone();
            }
        }
        drop(stdin);
        let fetcher = slow.await_one_that_is_detached();
        let left = |found: &(u32, String)| found.0 != fetcher;
        let gone = within(PATIENCE, || (!with_word(&slow.fake.host).iter().any(left)).then_some(()));
        assert!(gone.is_some(), "{end}: left beside the download: {:#?}", with_word(&slow.fake.host));
        slow.set(Gate::Open);
        slow.await_none();
        world.smcp(["run", "--offline", &name, "exit", "5"]).run().expect(5);
        assert_eq!((slow.downloads(), lock(world)), (1, None), "{end}");
        world.smcp(["cache", "rm", "--all"]).run().ok();
    }
}

/// In CI nobody answers for a download: it is a part of the run, and the log has the run's end.
fn l1_a_download_that_nobody_answers_for_ends_with_its_run(world: &World) {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let slow = Slow::serve();
        let name = slow.name();
        let mut running = world.smcp(["run", &name, "exit", "4"]).env("CI", "true").start();
        let stdin = running.take_stdin();
        within(PATIENCE, || (slow.downloads() > 0).then_some(())).expect("it asks for the layer");
        running.signal(signal);
        running.wait().expect(code).says(&["was ended by signal", &name]);
        drop(stdin);
        let end = world.last_end();
        assert_eq!((&end["exit"], &end["cause"]), (&code.into(), &"terminated".into()), "{end}");
        slow.await_none();
        slow.set(Gate::Open);
        let ended = world.smcp(["run", &name, "exit", "4"]).run().expect(4);
        ended.check(!ended.stderr().contains("in the background"), "nothing went on");
        assert_eq!(lock(world), None);
        world.smcp(["cache", "rm", "--all"]).run().ok();
    }
}

/// Eight seconds, where nobody says otherwise.
#[test]
fn a13_how_long_a_client_waits() {
    let world = World::new(User::Ordinary);
    let slow = Slow::serve();
    let ended = world.smcp(["run", &slow.name()]).without_env("MCP_PULL_PATIENCE").told(INITIALIZE).expect(124);
    ended.check(ended.took() >= Duration::from_secs(8), "eight seconds were expected");
    ended.check(answer(&ended)["error"]["message"].to_string().contains("longer than 8s"), "an answer was expected");
    slow.set(Gate::Open);
    slow.await_none();
}
