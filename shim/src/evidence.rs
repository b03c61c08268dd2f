//! What is known about a package beside its own word, from all who may say something.

use std::collections::BTreeSet;
use std::path::Path;

use bundle::attest::{PublicKey, Signers, Trust, TrustedKey, look_up};
use bundle::policy::Policy;
use bundle::{Evidence, hub_word};
use distribution::{Network, Resolved, Store};
use jiff::Timestamp;

use crate::exit::{self, Failure};
use crate::settings::{Settings, read_small};

/// What is known of a package, by the keys that policy names. Its hub's word is stored with its name, so that a start without
/// a network knows it as well. Where policy names no key nothing is asked for and nothing is read.
///
/// # Errors
/// Where a key cannot be read, or what was seen before.
pub fn of(
    resolved: &Resolved,
    store: &Store,
    network: &Network,
    settings: &Settings,
    policy: &Policy,
    now: Timestamp,
) -> Result<Evidence, Failure> {
    let keys = trusted(&policy.keys())?;
    let signers = Signers { keys: &keys, ..Signers::default() };
    let trust = Trust { signers, memory: &settings.attested(), now };
    let evidence = look_up(resolved, store, network, &trust)?.evidence;
    Ok(Evidence { hub: hub_word(resolved), ..evidence })
}

fn trusted(files: &BTreeSet<&Path>) -> Result<Vec<TrustedKey>, Failure> {
    let fail = |file: &Path, why: &dyn std::fmt::Display| {
        Failure::new(exit::CONFIGURATION, format!("policy names the key {}: {why}", file.display()))
            .hint("a public key in PEM, as `smcp key generate` writes it; `smcp policy show` says which file names it")
    };
    let key = |file: &&Path| {
        let bytes = read_small(file).map_err(|why| fail(file, &why))?;
        let key = PublicKey::from_pem(&bytes).map_err(|why| fail(file, &why))?;
        Ok(TrustedKey { file: file.to_path_buf(), key })
    };
    files.iter().map(key).collect()
}
