//! What is known about a package beside its own word, from all who may say something.

use std::io::ErrorKind;
use std::path::Path;

use bundle::attest::{Root, Signers, Trust, TrustedIdentity, look_up};
use bundle::policy::{Policy, Subject, Who};
use bundle::{Evidence, hub_word};
use distribution::{Network, Resolved, Store};
use jiff::Timestamp;

use crate::exit::{self, Failure};
use crate::key;
use crate::settings::Settings;

/// What is known of a package: signatures and attestations by those whom the policy names for it, and its hub's word, which is stored
/// with its name. Each key is read once. Where the policy names nobody for it, no file is read and nobody is asked.
///
/// # Errors
/// Of code 119 where a key of the policy or the trust root cannot be read; else where the store or what was seen before cannot be.
pub fn of(
    resolved: &Resolved,
    store: &Store,
    network: &Network,
    policy: &Policy,
    subject: &Subject<'_>,
    settings: &Settings,
    now: Timestamp,
) -> Result<Evidence, Failure> {
    let (mut keys, mut identities) = (Vec::new(), Vec::new());
    for (who, source) in policy.signers_of(subject) {
        match who {
            Who::Key(file) => keys.push(key::trusted(file).map_err(|why| {
                let what = format!("the key {}, which {source} names: {why}", file.display());
                Failure::new(exit::CONFIGURATION, what)
            })?),
            Who::Identity { identity, issuer } => {
                identities.push(TrustedIdentity { identity: identity.clone(), issuer: issuer.clone() });
            }
        }
    }
    let root = if identities.is_empty() { None } else { trust_root(&settings.trust_root())? };
    let signers = Signers { keys: &keys, root: root.as_ref(), identities: &identities };
    let trust = Trust { signers, memory: &settings.attested(), now };
    let outcome = look_up(resolved, store, network, &trust)?;
    Ok(Evidence { hub: hub_word(resolved), ..outcome.evidence })
}

/// Where there is none, no certificate counts.
fn trust_root(path: &Path) -> Result<Option<Root>, Failure> {
    if matches!(path.symlink_metadata(), Err(why) if why.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    let fail = |why| Failure::new(exit::CONFIGURATION, format!("the trust root {}: {why}", path.display()));
    key::trust_root(path).map(Some).map_err(fail)
}
