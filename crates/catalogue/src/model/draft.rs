//! Versions of an object, before and after their publication.

use levada_core::{BadSignature, Digest, Identity, SecretKey, UnixTime, sha256};

use super::version::{self, Version};
use super::{
    DescriptorSignature, Key, MAX_DESCRIPTOR, MAX_LEVELS, MAX_SIGNATURES, ModelError, Package,
    check_object, signed_digest,
};

/// A version that is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The object.
    pub key: Key,
    /// Its version.
    pub version: Version,
    /// A JSON object of at most [`MAX_DESCRIPTOR`] bytes and [`MAX_LEVELS`] levels.
    pub descriptor: Vec<u8>,
    /// The code that belongs to it.
    pub package: Option<Package>,
    /// Signatures over [`Self::signed_digest`], at most [`MAX_SIGNATURES`].
    pub signatures: Vec<DescriptorSignature>,
}

impl Draft {
    /// Checks every limit. Of the signatures only the number is checked; [`Self::check_signatures`]
    /// verifies them.
    ///
    /// # Errors
    /// [`ModelError`] names the limit that is exceeded or the part that is malformed.
    pub fn check(&self) -> Result<(), ModelError> {
        check_descriptor(&self.descriptor)?;
        check_metadata(&self.version, &self.signatures, self.package.as_ref())
    }

    /// SHA-256 of the descriptor.
    pub fn digest(&self) -> Digest {
        sha256(&[&self.descriptor])
    }

    /// The digest that its signatures cover.
    pub fn signed_digest(&self) -> Digest {
        signed_digest(&self.key, &self.version, &self.digest(), self.package.as_ref())
    }

    /// Adds a signature, which later changes of the draft invalidate.
    pub fn sign(&mut self, key: &SecretKey) {
        self.signatures.push(DescriptorSignature::new(key, &self.signed_digest()));
    }

    /// Verifies that every signature covers this draft.
    ///
    /// # Errors
    /// [`ModelError::Signature`] names the signer of the first one that does not.
    pub fn check_signatures(&self) -> Result<(), ModelError> {
        let digest = self.signed_digest();
        for signature in &self.signatures {
            let checked = signature.verify(&digest);
            checked.map_err(|BadSignature| ModelError::Signature(signature.identity))?;
        }
        Ok(())
    }
}

/// A published version. Only `yanked` and `revision` change after the publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The object.
    pub key: Key,
    /// Its version.
    pub version: Version,
    /// A JSON object, byte for byte as published; empty in a list of versions.
    pub descriptor: Vec<u8>,
    /// SHA-256 of the descriptor as published.
    pub digest: Digest,
    /// The code that belongs to it.
    pub package: Option<Package>,
    /// Signatures over [`Self::signed_digest`].
    pub signatures: Vec<DescriptorSignature>,
    /// The identity of the publishing peer; `None` for the store's owner, by an import or on the
    /// command line.
    pub publisher: Option<Identity>,
    /// The time of the publication.
    pub published: UnixTime,
    /// Whether version ranges and `latest` ignore it; it can still be fetched by its exact version.
    pub yanked: bool,
    /// The store's revision of the publication or of the last change of `yanked`. Revisions
    /// increase with every change and are never reused.
    pub revision: u64,
}

impl Published {
    /// The published form of `draft`.
    pub fn new(
        draft: &Draft,
        publisher: Option<Identity>,
        published: UnixTime,
        revision: u64,
    ) -> Self {
        Self {
            key: draft.key.clone(),
            version: draft.version.clone(),
            descriptor: draft.descriptor.clone(),
            digest: draft.digest(),
            package: draft.package.clone(),
            signatures: draft.signatures.clone(),
            publisher,
            published,
            yanked: false,
            revision,
        }
    }

    /// Checks a version that another machine sent against every limit of [`Draft::check`]. The
    /// descriptor may be absent.
    ///
    /// # Errors
    /// [`ModelError`] names the limit that is exceeded or the part that is malformed.
    pub fn check(&self) -> Result<(), ModelError> {
        if !self.descriptor.is_empty() {
            check_descriptor(&self.descriptor)?;
        }
        check_metadata(&self.version, &self.signatures, self.package.as_ref())
    }

    /// The digest that its signatures cover.
    pub fn signed_digest(&self) -> Digest {
        signed_digest(&self.key, &self.version, &self.digest, self.package.as_ref())
    }
}

fn check_descriptor(descriptor: &[u8]) -> Result<(), ModelError> {
    if descriptor.len() > MAX_DESCRIPTOR {
        return Err(ModelError::DescriptorLength(descriptor.len()));
    }
    check_object(descriptor, MAX_LEVELS).map_err(ModelError::Descriptor)
}

fn check_metadata(
    version: &Version,
    signatures: &[DescriptorSignature],
    package: Option<&Package>,
) -> Result<(), ModelError> {
    version::check(version)?;
    if signatures.len() > MAX_SIGNATURES {
        return Err(ModelError::Signatures(signatures.len()));
    }
    package.map_or(Ok(()), Package::check)
}
