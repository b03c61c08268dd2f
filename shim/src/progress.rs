//! How far a download is: a bar on a terminal, plain lines in CI, and to a client one line when it may take long.

use std::cell::{Cell, RefCell};
use std::env;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use bundle::format_size;
use distribution::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::show;

/// Clients give a server about a minute to say hello. A download of this size, in bytes, or this long may take it.
const LARGE: u64 = 16 << 20;
const LONG: Duration = Duration::from_secs(10);

/// Shows one download.
pub struct Download {
    /// Of the package, and how it was typed.
    name: String,
    reference: String,
    way: Way,
    planned: Cell<u64>,
    received: Cell<u64>,
    began: Cell<Option<Instant>>,
    bar: RefCell<Option<ProgressBar>>,
}

/// Who looks on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Bar,
    Lines,
    /// A client that waits for a server: it is told once.
    Client,
    Nobody,
}

impl Download {
    /// Of a command whose work it is.
    pub fn asked_for(name: &str, reference: &str) -> Self {
        Self::new(name, reference, Way::Nobody)
    }

    /// Before a server can start.
    pub fn awaited(name: &str, reference: &str) -> Self {
        Self::new(name, reference, Way::Client)
    }

    fn new(name: &str, reference: &str, otherwise: Way) -> Self {
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let in_ci = is_ci();
        let way = match std::io::stderr().is_terminal() {
            _ if show::is_quiet() => Way::Nobody,
            true if dumb || in_ci => Way::Lines,
            true => Way::Bar,
            false if in_ci => Way::Lines,
            false => otherwise,
        };
        let (planned, received, began) = (Cell::new(0), Cell::new(0), Cell::new(None));
        let (name, reference) = (name.into(), reference.into());
        Self { name, reference, way, planned, received, began, bar: RefCell::default() }
    }

    /// Shows a step.
    pub fn step(&self, step: Progress) {
        match step {
            Progress::Planned { layers, bytes } => {
                self.planned.set(bytes);
                self.began.set(Some(Instant::now()));
                self.begin(layers);
            }
            Progress::Received { bytes, .. } => {
                self.received.set(self.received.get() + bytes);
                if let Some(bar) = &*self.bar.borrow() {
                    bar.inc(bytes);
                }
                if self.began.get().is_some_and(|began| began.elapsed() > LONG) {
                    self.tell_the_client();
                }
            }
            Progress::Done { digest } if self.way == Way::Lines => {
                show::say(&format!("fetched {}", &digest.hex()[..12]))
            }
            Progress::Started { .. } | Progress::Done { .. } => {}
        }
    }

    fn begin(&self, layers: usize) {
        let (name, bytes) = (&self.name, self.planned.get());
        match self.way {
            Way::Lines => show::say(&format!("fetching {name}: {layers} layers, {}", format_size(bytes))),
            Way::Client if bytes >= LARGE => self.tell_the_client(),
            Way::Bar => {
                let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr_with_hz(10));
                let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
                bar.set_style(style.expect("the template is right").progress_chars("=> "));
                bar.set_message(show::printable(name).into_owned());
                *self.bar.borrow_mut() = Some(bar);
            }
            Way::Client | Way::Nobody => {}
        }
    }

    fn tell_the_client(&self) {
        if self.way == Way::Client && self.began.take().is_some() {
            let (done, all) = (format_size(self.received.get()), format_size(self.planned.get()));
            show::say(&format!("fetching {} before its first start, {done} of {all} so far", self.name));
            show::say(&format!("hint: a client may not wait for that: smcp pull {}", self.reference));
        }
    }
}

/// Whether this runs in continuous integration, as its services say by a variable.
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

impl Drop for Download {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
