//! What is known about a package beside its own word, from all who may say something.

use bundle::{Evidence, hub_word};
use distribution::Resolved;

/// What is known of a package. Its hub's word is stored with its name, so that a start without a network knows it as well.
pub fn of(resolved: &Resolved) -> Evidence {
    Evidence { hub: hub_word(resolved), ..Evidence::none() }
}
