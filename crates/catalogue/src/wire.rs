//! Conversions between the messages of the catalogue and the types of the model, with all checks of
//! received messages.

use levada_core::wire::catalogue::{self as wire, Cause, Failed};
use levada_core::{Digest, Identity};

use crate::model::{
    DescriptorSignature, Draft, Key, MAX_SIGNATURES, MAX_VERSION, Package, Version,
};

/// Length of an identity and its signature, in bytes.
const SIGNATURE: usize = 32 + 64;

/// The draft in a [`wire::Publish`]. [`Draft::check`] checks its limits.
///
/// # Errors
/// [`Failed`] with [`Cause::Invalid`] says what is wrong.
pub fn draft(call: wire::Publish) -> Result<Draft, Failed> {
    Ok(Draft {
        key: key(&call.key)?,
        version: version(&call.version)?,
        descriptor: call.descriptor,
        package: call.package.map(package).transpose()?,
        signatures: signatures(&call.signatures)?,
    })
}

/// The request that publishes `draft`.
pub fn publish(draft: &Draft) -> wire::Publish {
    wire::Publish {
        key: draft.key.to_string(),
        version: draft.version.to_string(),
        descriptor: draft.descriptor.clone(),
        package: draft.package.as_ref().map(write_package),
        signatures: write_signatures(&draft.signatures),
    }
}

/// Parses `TYPE/NAME`.
///
/// # Errors
/// [`Failed`] with [`Cause::Invalid`] says what is wrong.
pub fn key(text: &str) -> Result<Key, Failed> {
    text.parse::<Key>().map_err(|error| invalid(&error.to_string()))
}

/// Parses a version.
///
/// # Errors
/// [`Failed`] with [`Cause::Invalid`] says what is wrong.
pub fn version(text: &str) -> Result<Version, Failed> {
    if text.len() > MAX_VERSION {
        return Err(invalid("the version is too long"));
    }
    Version::parse(text).map_err(|error| invalid(&format!("not a version: {error}")))
}

/// A SHA-256 digest.
///
/// # Errors
/// [`Failed`] with [`Cause::Invalid`] says what is wrong.
pub fn digest(bytes: &[u8]) -> Result<Digest, Failed> {
    bytes.try_into().map_err(|_| invalid("a digest has 32 bytes"))
}

/// An identity; `None` if `bytes` is empty.
///
/// # Errors
/// [`Failed`] with [`Cause::Invalid`] says what is wrong.
pub fn identity(bytes: &[u8]) -> Result<Option<Identity>, Failed> {
    if bytes.is_empty() {
        return Ok(None);
    }
    Identity::try_from(bytes).map(Some).map_err(|error| invalid(&error.to_string()))
}

/// The package of a version. `Package::check` checks its limits.
///
/// # Errors
/// [`Failed`] with [`Cause::Invalid`] says what is wrong.
pub fn package(package: wire::Package) -> Result<Package, Failed> {
    Ok(Package {
        digest: digest(&package.digest)?,
        length: package.length,
        media_type: package.media_type,
        description: package.description,
    })
}

/// The message for [`package`].
pub fn write_package(package: &Package) -> wire::Package {
    wire::Package {
        digest: package.digest.to_vec(),
        length: package.length,
        media_type: package.media_type.clone(),
        description: package.description.clone(),
    }
}

/// Signatures: an identity and its signature each, at most [`MAX_SIGNATURES`].
///
/// # Errors
/// [`Failed`] with [`Cause::Invalid`] says what is wrong.
pub fn signatures(bytes: &[u8]) -> Result<Vec<DescriptorSignature>, Failed> {
    let pieces = bytes.chunks_exact(SIGNATURE);
    if !pieces.remainder().is_empty() || pieces.len() > MAX_SIGNATURES {
        let text = format!("the signatures are malformed, or more than {MAX_SIGNATURES}");
        return Err(invalid(&text));
    }
    let parse = |piece: &[u8]| {
        let (identity, signature) = piece.split_first_chunk::<32>()?;
        let signature = signature.try_into().ok()?;
        Some(DescriptorSignature { identity: Identity::from_bytes(*identity), signature })
    };
    let signatures: Option<Vec<_>> = pieces.map(parse).collect();
    signatures.ok_or_else(|| invalid("the signatures are malformed"))
}

/// The bytes for [`signatures`].
pub fn write_signatures(signatures: &[DescriptorSignature]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(signatures.len() * SIGNATURE);
    for one in signatures {
        bytes.extend_from_slice(one.identity.as_bytes());
        bytes.extend_from_slice(&one.signature);
    }
    bytes
}

/// The request is invalid.
pub fn invalid(text: &str) -> Failed {
    Failed::new(Cause::Invalid, text)
}
