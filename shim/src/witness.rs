//! Who hears what the filter reads of a session, beside what it passes on.

use runtime::journal;

use crate::calls::Calls;
use crate::handshake::Handshake;
use crate::pins::Keeper;

/// Nobody, where nothing of it is asked for.
#[derive(Default)]
pub struct Witness {
    /// Keeps what the server lists.
    pub keeper: Option<Keeper>,
    /// Writes down the calls of tools.
    pub calls: Option<Calls>,
}

impl Witness {
    /// Takes what was read since the last time. What a person has to be told is added to `told`, for stderr.
    pub fn hear(&mut self, handshake: &mut Handshake, told: &mut Vec<u8>) {
        if let Some(keeper) = &mut self.keeper {
            handshake.found().into_iter().for_each(|found| keeper.hear(found, told));
        }
        if let Some(calls) = &mut self.calls {
            handshake.called().into_iter().for_each(|called| calls.note(called));
        }
    }

    /// Takes the end of the session; what came of its calls, where they are written down.
    pub fn end(self, handshake: Option<&mut Handshake>) -> Option<journal::Calls> {
        let mut calls = self.calls?;
        let mut unread = 0;
        if let Some(handshake) = handshake {
            unread = handshake.calls_end();
            handshake.called().into_iter().for_each(|called| calls.note(called));
        }
        Some(calls.finish(unread))
    }
}
