//! Who built a file, by a certificate.

use jiff::Timestamp;

/// Whom a certificate names that a trust root vouches for, and what it says of the build. All of it is what a certificate authority was
/// shown: whether that is whom somebody expects is another question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Builder {
    /// The URI of what signed, or an e-mail address.
    pub identity: String,
    /// Who vouched for that, a URL.
    pub issuer: String,
    /// The repository that it was built from, a URL.
    pub repository: Option<String>,
    /// The commit of it, in hex.
    pub commit: Option<String>,
    /// What ran: the URI of a workflow's file, `@` and its ref.
    pub workflow: Option<String>,
    /// When a log or a time stamp had it, the first of them.
    pub signed_at: Timestamp,
}
