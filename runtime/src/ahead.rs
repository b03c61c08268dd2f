//! A run whose plan is not known yet, where nothing is done for it ahead of that.

use ulid::Ulid;

use crate::NO_CALLS;
use crate::identity::Identity;
use crate::outcome::Recording;
use crate::plan::Plan;
use crate::refusal::Refusal;

/// A run whose plan is not known yet. Nothing is done for it ahead of that here.
#[derive(Debug)]
pub struct Ahead {
    run: Ulid,
    direct: bool,
}

impl Ahead {
    /// Takes note of it.
    ///
    /// # Errors
    /// None here.
    pub fn split(_: &Identity, run: Ulid) -> Result<Ahead, Refusal> {
        Ok(Ahead { run, direct: false })
    }

    /// The server gets this process's own standard input and output in place of pipes.
    pub fn direct(&mut self) {
        self.direct = true;
    }

    /// Orders the cage of the plan.
    ///
    /// # Errors
    /// A [`Refusal`]: calls cannot be recorded here.
    pub fn order(self, _: &Plan, recording: Recording) -> Result<Ordered, Refusal> {
        match recording {
            Recording::Nothing => Ok(Ordered { run: self.run, direct: self.direct }),
            Recording::Calls => Err(Refusal::new("recording calls", NO_CALLS)),
        }
    }
}

/// A cage to be built.
#[derive(Debug)]
pub struct Ordered {
    pub(crate) run: Ulid,
    pub(crate) direct: bool,
}
