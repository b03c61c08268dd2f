//! Runs that are ended at random moments, several at once: what is left of them is nothing (L1, L12).
//!
//! The quick form is a part of the suite, sixty ends. The long one has five hundred:
//! `cargo test -p smcp --test smcp -- --ignored violent`. With `SMCP_SEED=N` the choices of a run that failed are made again.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::image::probe_reference;
use crate::needs;
use crate::patience::within;
use crate::processes::with_word;
use crate::remains::{Before, own_copy};
use crate::world::{User, World, at_each_tier};

/// One step of the ladder.
const GRACE: Duration = Duration::from_secs(2);
/// What the work around a wait may take where several runs share a busy machine.
const SLACK: Duration = Duration::from_secs(3);
/// How many runs there are at once.
const AT_ONCE: usize = 5;

at_each_tier! { twenty_violent_ends }

fn twenty_violent_ends(world: &World) {
    violent_ends(world, 20);
}

#[test]
#[ignore = "takes minutes; CONTRIBUTING.md has its command"]
fn five_hundred_violent_ends() {
    if needs::root() {
        violent_ends(&World::new(User::Root), 200);
    }
    violent_ends(&World::new(User::Ordinary), if needs::root() { 200 } else { 400 });
    violent_ends(&World::without_namespaces(), 100);
}

/// Ends so many runs, each in its time, then looks at everything that they may have left.
fn violent_ends(world: &World, count: usize) {
    let seed = Seed::chosen();
    let mut dice = Dice(seed.0);
    let fates: Vec<Fate> = (0..count).map(|_| Fate::drawn(&mut dice)).collect();
    let smcp = own_copy(world);
    world.copy(&smcp, ["run", probe_reference(), "exit", "0"]).run().ok();
    let before = Before::of(world);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(fate) = fates.get(number) else { return };
                    fate.befall(world, &smcp, &format!("{}{number}-", world.mark()));
                }
            });
        }
    });
    before.nothing_is_left(GRACE * 2 + Duration::from_secs(1) + SLACK);
    before.the_next_start_removes_the_rest();
}

/// What a run is, and how and when it ends.
#[derive(Clone, Copy, Debug)]
struct Fate {
    end: End,
    moment: Moment,
    /// A tree that is deaf to everything, in sessions of its own.
    stubborn: bool,
    granted: bool,
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// The client closes stdin.
    Eof,
    /// SIGTERM to smcp.
    Term,
    /// SIGKILL to smcp.
    Kill,
    /// SIGKILL to the client that holds smcp by pipes.
    Client,
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After the start.
    Starting(Duration),
    /// After the server's first word.
    Running(Duration),
}

impl Fate {
    fn drawn(dice: &mut Dice) -> Fate {
        let end = [End::Eof, End::Term, End::Kill, End::Client][dice.below(4)];
        let moment = match dice.below(10) {
            0..7 => Moment::Starting(Duration::from_micros(dice.below(60_000) as u64)),
            _ => Moment::Running(Duration::from_micros(dice.below(20_000) as u64)),
        };
        Fate { end, moment, stubborn: dice.below(3) == 0, granted: dice.below(2) == 0 }
    }

    /// One run with a mark of its own, to its end and a look at what is left of its processes.
    fn befall(self, world: &World, smcp: &Path, mark: &str) {
        let project = world.text("project");
        let flags: &[&str] = if self.granted { &["--allow-write", &project] } else { &[] };
        let verb: &[&str] = if self.stubborn { &["family", "3", mark] } else { &["until-eof", "0", mark] };
        let command = world.copy(smcp, ["run"]).args(flags).args([probe_reference()]).args(verb);
        let mut running = match self.end {
            End::Client => command.held_by_a_client().start(),
            _ => command.start(),
        };
        let stdin = running.take_stdin();
        // No waits for something: the moment is the input.
        match self.moment {
            Moment::Starting(after) => thread::sleep(after),
            Moment::Running(after) => {
                running.await_ready();
                thread::sleep(after);
            }
        }
        let patience = match self.end {
            End::Eof => {
                drop(stdin);
                running.wait();
                GRACE * 2
            }
            End::Term => {
                running.signal(Signal::TERM);
                running.wait();
                drop(stdin);
                GRACE
            }
            End::Kill => {
                running.signal(Signal::KILL);
                running.wait_for_the_process_alone();
                drop(stdin);
                Duration::ZERO
            }
            End::Client => {
                running.signal(Signal::KILL);
                running.wait_for_the_process_alone();
                drop(stdin);
                GRACE * 2
            }
        };
        let patience = patience + Duration::from_secs(1) + SLACK;
        let gone = within(patience, || with_word(mark).is_empty().then_some(()));
        assert!(gone.is_some(), "{self:?}: left after {patience:?}: {:#?}\n{}", with_word(mark), world.audit_text());
    }
}

/// A pseudo-random sequence, splitmix64.
pub struct Dice(pub u64);

impl Dice {
    /// A number from 0 to one less than `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Where the choices come from. A test that fails tells it.
pub struct Seed(pub u64);

impl Seed {
    /// The one that is asked for, else one of the clock's.
    pub fn chosen() -> Seed {
        let asked = std::env::var("SMCP_SEED").ok().map(|text| text.parse().expect("SMCP_SEED is a number"));
        let clock =
            || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_nanos() as u64;
        Seed(asked.unwrap_or_else(clock))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the choices were those of SMCP_SEED={}", self.0);
        }
    }
}
