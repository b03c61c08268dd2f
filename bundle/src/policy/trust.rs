//! Who must have signed a package, and whose word about it counts.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::pattern::Pattern;
use crate::evidence::Signer;

/// One entry of `signatures`: a package that one of the names stands for must have a signature by one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureRule {
    /// Which packages. A demand is read widely: with a registry in front a pattern is compared with the whole name, without
    /// one with the name in any registry, and with what the package calls itself.
    pub names: Vec<Pattern>,
    /// Any of them will do.
    pub by: Vec<Who>,
}

/// One entry of `certifiers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certifier {
    /// Whose word it is.
    pub who: Who,
    /// About what it counts.
    pub predicates: BTreeSet<Predicate>,
    /// About which packages. Trust is read narrowly: a pattern without a registry stands for packages of [`Certifier::registry`].
    pub names: Vec<Pattern>,
    /// The host of the registry that whoever says so has configured, see [`super::Policy::of_registry`].
    pub registry: Option<String>,
    /// The highest level that it can give, 0 to 3.
    pub max_level: u8,
}

/// A key or an identity that a policy names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A public key, by its file.
    Key(PathBuf),
    /// Who a certificate of a trust root names.
    Identity {
        /// An e-mail address or the URI of a workflow.
        identity: String,
        /// Who vouches for it.
        issuer: String,
    },
}

/// What an attestation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Predicate {
    /// Level and score.
    Certification,
    /// A word against a package.
    Revocation,
}

impl Predicate {
    /// Both, which is what an entry without the key means.
    pub(super) fn all() -> BTreeSet<Predicate> {
        BTreeSet::from([Predicate::Certification, Predicate::Revocation])
    }
}

impl Who {
    /// Whether a signature is theirs.
    pub fn is(&self, signer: &Signer) -> bool {
        match (self, signer) {
            (Who::Key(named), Signer::Key { file, .. }) => named == file,
            (Who::Identity { identity, issuer }, Signer::Identity { identity: is, issuer: by }) => {
                identity == is && issuer == by
            }
            _ => false,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Key(file) => write!(f, "key {}", file.display()),
            Who::Identity { identity, issuer } => write!(f, "{identity} ({issuer})"),
        }
    }
}

impl FromStr for Predicate {
    type Err = String;

    fn from_str(text: &str) -> Result<Predicate, String> {
        match text {
            "certification" => Ok(Predicate::Certification),
            "revocation" => Ok(Predicate::Revocation),
            _ => Err(format!("{text:?} is none of certification, revocation")),
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Predicate::Certification => "certification",
            Predicate::Revocation => "revocation",
        })
    }
}
