//! Bundles that are signed by a short-lived certificate: of whom, is what a trust root's authority vouched for, and that it was valid then,
//! what a transparency log or a time stamp proves. All of it is in the bundle and in the root's file; no network is used.

use std::fmt;

use distribution::{Algorithm, Digest};
use jiff::Timestamp;
use ring::{digest, signature};
use sigstore_verify::crypto::{CryptoProvider, Error, HashContext, Result as CryptoResult, SigningScheme};
use sigstore_verify::trust_root::{SIGSTORE_PRODUCTION_TRUSTED_ROOT, TrustedRoot};
use sigstore_verify::types::{self, DigestBytes, HashAlgorithm};
use sigstore_verify::{VerificationPolicy, Verifier};

use super::builder::Builder;
use crate::evidence::Signer;

/// Certificate authorities, logs and time stamps that count: sigstore's `trusted_root.json`.
pub struct Root(Verifier);

impl Root {
    /// Reads one.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn from_json(text: &str) -> Result<Self, String> {
        // The first one wins, and there is one.
        let _ = sigstore_verify::crypto::install_default_provider(&Ring);
        let root = TrustedRoot::from_json(text).map_err(|why| why.to_string())?;
        Verifier::new(&root).map(Self).map_err(|why| why.to_string())
    }

    /// That of sigstore's public instance, as of the version of the crate that holds it.
    ///
    /// # Errors
    /// As [`Root::from_json`].
    pub fn public() -> Result<Self, String> {
        Self::from_json(SIGSTORE_PRODUCTION_TRUSTED_ROOT)
    }

    /// Who signed a bundle about a digest. Whether that name counts for anything is not asked here.
    pub(super) fn signer(&self, bundle: &str, about: &Digest) -> Result<Signer, String> {
        let Builder { identity, issuer, .. } = self.builder(bundle, about)?;
        Ok(Signer::Identity { identity, issuer })
    }

    /// The same, with what the certificate says of a build.
    pub(crate) fn builder(&self, bundle: &str, about: &Digest) -> Result<Builder, String> {
        let bundle = types::Bundle::from_json(bundle).map_err(|why| why.to_string())?;
        let algorithm = match about.algorithm() {
            Algorithm::Sha256 => HashAlgorithm::Sha2256,
            Algorithm::Sha512 => HashAlgorithm::Sha2512,
        };
        let digest = DigestBytes::from_hex(about.hex()).and_then(|bytes| types::ArtifactDigest::new(algorithm, bytes));
        let digest = digest.map_err(|why| why.to_string())?;
        let verified = self.0.verify(types::Artifact::Digest(digest), &bundle, &VerificationPolicy::any_identity());
        let verified = verified.map_err(|why| format!("the trust root does not vouch for it: {why}"))?;
        let nobody = || String::from("its certificate names nobody, or no log has it");
        let first = verified.verified_timestamps().iter().map(|at| at.as_second()).min();
        let signed_at = first.and_then(|second| Timestamp::from_second(second).ok()).ok_or_else(nobody)?;
        match (verified.identity(), verified.issuer(), verified.certificate()) {
            (Some(identity), Some(issuer), Some(certificate))
                if verified.certificate_verified() && verified.sct_verified() && verified.tlog_verified() =>
            {
                let claims = &certificate.ci_claims;
                Ok(Builder {
                    identity: identity.as_str().into(),
                    issuer: issuer.into(),
                    repository: claims.source_repository_uri.clone(),
                    commit: claims.source_repository_digest.clone(),
                    workflow: claims.build_config_uri.clone(),
                    signed_at,
                })
            }
            _ => Err(nobody()),
        }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trust root")
    }
}

/// The verifier's cryptography by ring, which is in the program already. Schemes that ring lacks are refused.
#[derive(Debug)]
struct Ring;

struct Hashing(digest::Context);

impl HashContext for Hashing {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

impl CryptoProvider for Ring {
    fn hash(&self, algorithm: HashAlgorithm) -> CryptoResult<Box<dyn HashContext>> {
        let algorithm = match algorithm {
            HashAlgorithm::Sha2256 => &digest::SHA256,
            HashAlgorithm::Sha2384 => &digest::SHA384,
            HashAlgorithm::Sha2512 => &digest::SHA512,
            other => return Err(Error::UnsupportedAlgorithm(format!("{other:?}"))),
        };
        Ok(Box::new(Hashing(digest::Context::new(algorithm))))
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], data: &[u8], signed: &[u8]) -> CryptoResult<()> {
        let algorithm: &dyn signature::VerificationAlgorithm = match scheme {
            SigningScheme::EcdsaP256Sha256 => &signature::ECDSA_P256_SHA256_ASN1,
            SigningScheme::EcdsaP256Sha384 => &signature::ECDSA_P256_SHA384_ASN1,
            SigningScheme::EcdsaP384Sha256 => &signature::ECDSA_P384_SHA256_ASN1,
            SigningScheme::EcdsaP384Sha384 => &signature::ECDSA_P384_SHA384_ASN1,
            SigningScheme::Ed25519 => &signature::ED25519,
            SigningScheme::RsaPssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
            SigningScheme::RsaPssSha384 => &signature::RSA_PSS_2048_8192_SHA384,
            SigningScheme::RsaPssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
            SigningScheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            SigningScheme::RsaPkcs1Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            SigningScheme::RsaPkcs1Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            other => return Err(Error::UnsupportedAlgorithm(format!("{other:?}"))),
        };
        let checked = signature::UnparsedPublicKey::new(algorithm, key).verify(data, signed);
        checked.map_err(|_| Error::Verification("the signature is not this key's".into()))
    }

    /// Of bare signatures alone, which are not read.
    fn verify_prehashed(&self, scheme: SigningScheme, _: &[u8], _: &[u8], _: &[u8]) -> CryptoResult<()> {
        Err(Error::UnsupportedAlgorithm(format!("{scheme:?} over a digest")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Form, Item, Signers, TrustedIdentity, verify};
    use super::*;
    use crate::evidence::Listing;

    /// A bundle of the sigstore project's own tests, signed by a workflow of GitHub's, with an entry in the public log.
    const BUNDLE: &str = include_str!("../../../tests/fixtures/signing/keyless.sigstore.json");
    const SUBJECT: &str = "sha256:54303491a8418fbed24344b513546182c29b43bf282ceb433af65e2299f9271f";
    const IDENTITY: &str =
        "https://github.com/prefix-dev/sigstore-example/.github/workflows/action.yaml@refs/heads/main";
    const ISSUER: &str = "https://token.actions.githubusercontent.com";

    /// What is said, or why it proves nothing.
    fn look(bundle: &str, about: &str, identity: &str, issuer: &str) -> Result<(Signer, String), String> {
        let root = Root::public().unwrap();
        let identities = [TrustedIdentity { identity: identity.into(), issuer: issuer.into() }];
        let signers = Signers { keys: &[], root: Some(&root), identities: &identities };
        let item = Item { form: Form::Bundle, text: bundle.into() };
        let outcome = verify(&[about.parse().unwrap()], &[item], &signers, Timestamp::now(), Listing::Complete);
        match &outcome.evidence.rejected[..] {
            [] => Ok(outcome.others[0].clone()),
            [rejected, ..] => Err(rejected.why.clone()),
        }
    }

    /// npm's `@sigstore/tuf` 4.0.2 and PyPI's `sigstore` 4.5.1 bring the same file, as of 2026-11. A later crate that brings another one is
    /// to be compared with these before this changes.
    #[test]
    fn the_public_trust_root_is_pinned() {
        let pinned = "sha256:6494e21ea73fa7ee769f85f57d5a3e6a08725eae1e38c755fc3517c9e6bc0b66";
        assert_eq!(Digest::of(SIGSTORE_PRODUCTION_TRUSTED_ROOT.as_bytes()).as_str(), pinned);
    }

    #[test]
    fn t12_a_certificate_of_the_public_trust_root() {
        let said = look(BUNDLE, SUBJECT, IDENTITY, ISSUER).unwrap();
        let signer = Signer::Identity { identity: IDENTITY.into(), issuer: ISSUER.into() };
        assert_eq!(said, (signer, "https://schemas.conda.org/attestations-publish-1.schema.json".into()));
    }

    #[test]
    fn t12_what_the_trust_root_does_not_vouch_for() {
        let changed = |from: &str, to: &str| {
            let changed = BUNDLE.replacen(from, to, 1);
            assert_ne!(changed, BUNDLE, "{from}");
            changed
        };
        let other = Digest::of("another package");
        let mut written: serde_json::Value = serde_json::from_str(BUNDLE).unwrap();
        let without = |key: &str| {
            let mut bundle = written.clone();
            bundle["verificationMaterial"]["tlogEntries"][0].as_object_mut().unwrap().remove(key).unwrap();
            bundle.to_string()
        };
        let no_proof = without("inclusionProof");
        written["verificationMaterial"]["tlogEntries"] = serde_json::json!([]);
        for (bundle, about, identity, issuer, why) in [
            (BUNDLE, other.as_str(), IDENTITY, ISSUER, "does not vouch for it"),
            (BUNDLE, SUBJECT, "https://github.com/evil", ISSUER, "counts for nothing here"),
            (BUNDLE, SUBJECT, IDENTITY, "https://evil.test", "counts for nothing here"),
            (&changed("\"sig\":\"MEYC", "\"sig\":\"MEYD"), SUBJECT, IDENTITY, ISSUER, "does not vouch for it"),
            (&no_proof, SUBJECT, IDENTITY, ISSUER, "does not vouch for it"),
            (&written.to_string(), SUBJECT, IDENTITY, ISSUER, "does not vouch for it"),
        ] {
            let refused = look(bundle, about, identity, issuer).unwrap_err();
            assert!(refused.contains(why), "{why}: {refused}");
        }
        // Of another root than the one that issued it.
        let staging = sigstore_verify::trust_root::SIGSTORE_STAGING_TRUSTED_ROOT;
        let refused = Root::from_json(staging).unwrap().signer(BUNDLE, &SUBJECT.parse().unwrap()).unwrap_err();
        assert!(refused.contains("does not vouch for it"), "{refused}");
        assert!(Root::from_json("{}").is_err());
    }
}
