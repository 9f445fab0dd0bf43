//! The data model: objects, their versions, their packages, and every limit on them. No I/O.

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

/// The maximum length of a descriptor, in bytes.
pub const MAX_DESCRIPTOR: usize = 1024 * 1024;
/// The maximum length of the description of a package, in bytes.
pub const MAX_PACKAGE_DESCRIPTION: usize = 64 * 1024;
/// The maximum nesting depth of objects and arrays in a descriptor or the description of a package, with the outermost
/// object counted.
pub const MAX_LEVELS: usize = 64;
/// The maximum number of signatures of one version.
pub const MAX_SIGNATURES: usize = 8;
/// The maximum length of a media type, in bytes.
pub const MAX_MEDIA_TYPE: usize = 255;

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A schema of the data that programs exchange.
    DataSchema,
    /// A program that a runtime loads.
    Hyperty,
    /// A stub that communicates with an identity provider.
    IdpProxy,
    /// A stub that implements the protocol of a domain.
    ProtocolStub,
    /// A runtime that loads hyperties and stubs.
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

    /// Its form in paths and keys.
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

/// The identifier of an object, written `KIND/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The type of the object.
    pub kind: Kind,
    /// The name, unique within the kind.
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

/// The code that belongs to a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// The length in bytes.
    pub length: u64,
    /// The media type (RFC 9110 section 8.3), at most [`MAX_MEDIA_TYPE`] bytes.
    pub media_type: String,
    /// reTHINK's `sourcePackage.json` without `sourceCode`: a JSON object of at most [`MAX_PACKAGE_DESCRIPTION`] bytes;
    /// `{}` if the package has no attributes.
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
    /// The identity of the publishing peer; `None` for the store's owner, by an import or on the command line.
    pub publisher: Option<Identity>,
    /// The time of the publication.
    pub published: UnixTime,
    /// Whether version ranges and `latest` ignore it; it can still be fetched by its exact version.
    pub yanked: bool,
    /// The store's revision of the publication or of the last change of `yanked`. Revisions increase with every change
    /// and are never reused.
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

    /// Checks a version that another machine sent against every limit of [`Draft::check`]. The descriptor may be absent.
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
    /// Checks every limit. Of the signatures only the number is checked; [`Self::check_signatures`] verifies them.
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
