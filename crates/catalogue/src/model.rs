//! What the catalogue holds: objects, their versions, their packages, and every bound on them. No I/O.

mod digest;
mod error;
mod json;
mod media_type;
mod name;
mod signature;
#[cfg(test)]
mod tests;
pub mod version;

use std::fmt;
use std::str::FromStr;

use levada_core::{Digest, Identity, UnixTime, sha256};

pub use digest::{digest_text, parse_digest};
pub use error::{JsonError, JsonFault, ModelError};
pub use json::check_object;
pub use name::{MAX_NAME, Name};
pub use signature::{DescriptorSignature, signed_digest};
pub use version::{Version, VersionReq};

/// The longest descriptor, in bytes.
pub const MAX_DESCRIPTOR: usize = 1024 * 1024;
/// The longest description of a package, in bytes.
pub const MAX_PACKAGE_DESCRIPTION: usize = 64 * 1024;
/// How many levels of objects and arrays a descriptor, or the description of a package, may have; the outermost is
/// the first.
pub const MAX_LEVELS: usize = 64;
/// The most signatures of one version.
pub const MAX_SIGNATURES: usize = 8;
/// The longest media type, in bytes.
pub const MAX_MEDIA_TYPE: usize = 255;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A schema of data that programs exchange.
    DataSchema,
    /// A program that a runtime loads.
    Hyperty,
    /// A stub that speaks to an identity provider.
    IdpProxy,
    /// A stub that speaks the protocol of a domain.
    ProtocolStub,
    /// What runs the others.
    Runtime,
    /// A service of a node.
    Service,
}

impl Kind {
    /// Every kind, sorted by its text.
    pub const ALL: [Self; 6] = [
        Self::DataSchema,
        Self::Hyperty,
        Self::IdpProxy,
        Self::ProtocolStub,
        Self::Runtime,
        Self::Service,
    ];

    /// How it is written in paths and keys.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DataSchema => "dataschema",
            Self::Hyperty => "hyperty",
            Self::IdpProxy => "idp-proxy",
            Self::ProtocolStub => "protocolstub",
            Self::Runtime => "runtime",
            Self::Service => "service",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| ModelError::Kind(error::excerpt(text)))
    }
}

/// Which object: written `KIND/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// What it is called among its kind.
    pub name: Name,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl FromStr for Key {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let (kind, name) = text.split_once('/').ok_or(ModelError::Key)?;
        Ok(Self { kind: kind.parse()?, name: name.parse()? })
    }
}

/// The code behind a descriptor: which bytes, and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// How many bytes.
    pub length: u64,
    /// What they are (RFC 9110 section 8.3), at most [`MAX_MEDIA_TYPE`] bytes.
    pub media_type: String,
    /// The original's `sourcePackage.json` without `sourceCode`: a JSON object of at most [`MAX_PACKAGE_DESCRIPTION`]
    /// bytes; `{}` if there is nothing to say.
    pub description: Vec<u8>,
}

impl Package {
    fn check(&self) -> Result<(), ModelError> {
        if !media_type::is_valid(&self.media_type) {
            return Err(ModelError::MediaType(error::excerpt(&self.media_type)));
        }
        if self.description.len() > MAX_PACKAGE_DESCRIPTION {
            return Err(ModelError::PackageDescriptionLength(self.description.len()));
        }
        check_object(&self.description, MAX_LEVELS).map_err(ModelError::PackageDescription)
    }
}

/// One published version; nothing of it changes but `yanked`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Which object.
    pub key: Key,
    /// Which version of it.
    pub version: Version,
    /// A JSON object, its bytes as published; empty in a list of versions.
    pub descriptor: Vec<u8>,
    /// SHA-256 of the descriptor as published.
    pub digest: Digest,
    /// The code behind it.
    pub package: Option<Package>,
    /// Who vouches for it.
    pub signatures: Vec<DescriptorSignature>,
    /// The identity of the channel that it came by; `None` is the store's owner, by an import or on its command line.
    pub publisher: Option<Identity>,
    /// When it was published.
    pub published: UnixTime,
    /// Whether it is not to be chosen any more; it can still be fetched by its version.
    pub yanked: bool,
    /// The change that made or last yanked this version: a number of the store, which grows with every change and is
    /// never used twice.
    pub revision: u64,
}

impl Published {
    /// What `draft` becomes when it is published.
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

    /// Holds what another machine says of a version against every bound of [`Draft::check`]. A descriptor that is not there
    /// is not missed.
    ///
    /// # Errors
    /// [`ModelError`] says which bound it breaks.
    pub fn check(&self) -> Result<(), ModelError> {
        if !self.descriptor.is_empty() {
            check_descriptor(&self.descriptor)?;
        }
        check_about(&self.version, &self.signatures, self.package.as_ref())
    }

    /// What its signatures are over.
    pub fn signed_digest(&self) -> Digest {
        signed_digest(&self.key, &self.version, &self.digest, self.package.as_ref())
    }
}

/// What is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Which object.
    pub key: Key,
    /// Which version of it.
    pub version: Version,
    /// A JSON object of at most [`MAX_DESCRIPTOR`] bytes and [`MAX_LEVELS`] levels.
    pub descriptor: Vec<u8>,
    /// The code behind it.
    pub package: Option<Package>,
    /// Who vouches for it: at most [`MAX_SIGNATURES`].
    pub signatures: Vec<DescriptorSignature>,
}

impl Draft {
    /// Holds it against every bound. Signatures are counted here, and checked by [`Self::check_signatures`].
    ///
    /// # Errors
    /// [`ModelError`] says which bound it breaks.
    pub fn check(&self) -> Result<(), ModelError> {
        check_descriptor(&self.descriptor)?;
        check_about(&self.version, &self.signatures, self.package.as_ref())
    }

    /// SHA-256 of the descriptor.
    pub fn digest(&self) -> Digest {
        sha256(&[&self.descriptor])
    }

    /// What its signatures are over.
    pub fn signed_digest(&self) -> Digest {
        signed_digest(&self.key, &self.version, &self.digest(), self.package.as_ref())
    }
}

fn check_descriptor(descriptor: &[u8]) -> Result<(), ModelError> {
    if descriptor.len() > MAX_DESCRIPTOR {
        return Err(ModelError::DescriptorLength(descriptor.len()));
    }
    check_object(descriptor, MAX_LEVELS).map_err(ModelError::Descriptor)
}

fn check_about(
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
