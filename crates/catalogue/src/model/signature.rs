//! Who vouches for a version.

use levada_core::{BadSignature, Digest, Identity, SecretKey, Signature, label, sha256};

use super::{Draft, Key, ModelError, Package, Version};

/// Somebody's signature over a version: its object, version, descriptor and package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorSignature {
    /// Who signed.
    pub identity: Identity,
    /// Ed25519 with the label `descriptor` over [`signed_digest`].
    pub signature: Signature,
}

impl DescriptorSignature {
    /// Signs what [`signed_digest`] gave.
    pub fn new(key: &SecretKey, digest: &Digest) -> Self {
        Self { identity: key.identity(), signature: key.sign(label::DESCRIPTOR, digest) }
    }

    /// Whether it is its identity's signature over what [`signed_digest`] gave.
    ///
    /// # Errors
    /// [`BadSignature`] if it is not.
    pub fn verify(&self, digest: &Digest) -> Result<(), BadSignature> {
        self.identity.verify(label::DESCRIPTOR, digest, &self.signature)
    }
}

/// SHA-256 over `KIND/NAME` ‖ 0 ‖ version ‖ 0 ‖ the descriptor's digest ‖ the package's, or 32 zero bytes. Names and
/// versions have no zero byte, so two versions never share it; and it names the object, so that no signature serves
/// for another.
pub fn signed_digest(
    key: &Key,
    version: &Version,
    descriptor: &Digest,
    package: Option<&Package>,
) -> Digest {
    let (key, version) = (key.to_string(), version.to_string());
    let package = package.map_or([0; 32], |package| package.digest);
    sha256(&[key.as_bytes(), &[0], version.as_bytes(), &[0], descriptor, &package])
}

impl Draft {
    /// Adds a signature. It holds for the draft as it is now.
    pub fn sign(&mut self, key: &SecretKey) {
        self.signatures.push(DescriptorSignature::new(key, &self.signed_digest()));
    }

    /// Whether every signature is over this draft.
    ///
    /// # Errors
    /// [`ModelError::Signature`] names the first that is not.
    pub fn check_signatures(&self) -> Result<(), ModelError> {
        let digest = self.signed_digest();
        for signature in &self.signatures {
            let checked = signature.verify(&digest);
            checked.map_err(|BadSignature| ModelError::Signature(signature.identity))?;
        }
        Ok(())
    }
}
