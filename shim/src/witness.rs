//! Who hears what the filter reads of a session, beside what it passes on.

use crate::handshake::Handshake;
use crate::pins::Keeper;

/// Nobody, where nothing of it is asked for.
#[derive(Default)]
pub struct Witness {
    /// Keeps what the server lists.
    pub keeper: Option<Keeper>,
}

impl Witness {
    /// Takes what was read since the last time. What a person has to be told is added to `told`, for stderr.
    pub fn hear(&mut self, handshake: &mut Handshake, told: &mut Vec<u8>) {
        if let Some(keeper) = &mut self.keeper {
            handshake.found().into_iter().for_each(|found| keeper.hear(found, told));
        }
    }
}
