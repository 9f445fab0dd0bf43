//! Signatures of versions.

use levada_core::{BadSignature, Digest, Identity, SecretKey, Signature, label, sha256};

use super::{Key, Package, Version};

/// A signature over a version: its key, version number, descriptor and package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorSignature {
    /// The signer.
    pub identity: Identity,
    /// Ed25519 with the label `descriptor` over [`signed_digest`].
    pub signature: Signature,
}

impl DescriptorSignature {
    /// Signs the result of [`signed_digest`].
    pub fn new(key: &SecretKey, digest: &Digest) -> Self {
        Self { identity: key.identity(), signature: key.sign(label::DESCRIPTOR, digest) }
    }

    /// Verifies that it is its identity's signature over `digest`, the result of [`signed_digest`].
    ///
    /// # Errors
    /// [`BadSignature`] if it is not.
    pub fn verify(&self, digest: &Digest) -> Result<(), BadSignature> {
        self.identity.verify(label::DESCRIPTOR, digest, &self.signature)
    }
}

/// SHA-256 over `KIND/NAME` ‖ 0 ‖ version ‖ 0 ‖ the descriptor's digest ‖ the package's digest, or
/// 32 zero bytes without a package. Names and versions contain no zero byte, so the input is
/// unambiguous; it contains the key, so that a signature is not valid for another object.
pub fn signed_digest(
    key: &Key,
    version: &Version,
    descriptor: &Digest,
    package: Option<&Package>,
) -> Digest {
    let key = key.to_string();
    let version = version.to_string();
    let package = package.map_or([0; 32], |package| package.digest);
    sha256(&[key.as_bytes(), &[0], version.as_bytes(), &[0], descriptor, &package])
}
