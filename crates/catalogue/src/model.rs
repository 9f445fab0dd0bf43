//! What a catalogue holds: objects, their versions, descriptors and packages. No I/O.

use std::fmt;
use std::str::FromStr;

use levada_core::{Digest, Identity, Signature, UnixTime};
use thiserror::Error;

pub use semver::{Version, VersionReq};

/// The longest descriptor, in bytes.
pub const MAX_DESCRIPTOR: usize = 1 << 20;
/// How deep a descriptor may be nested.
pub const MAX_DEPTH: usize = 64;
/// The longest description of a package, in bytes.
pub const MAX_DESCRIPTION: usize = 64 << 10;
/// How many signatures a version may carry.
pub const MAX_SIGNATURES: usize = 8;

/// Why something is no part of a catalogue.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ModelError {
    /// Not a kind of object.
    #[error("`{0}` is no kind of object")]
    Kind(String),
    /// Not the name of an object.
    #[error("not a name: {0}")]
    Name(&'static str),
    /// Not the key of an object.
    #[error("not KIND/NAME")]
    Key,
    /// A descriptor, package or signature breaks a bound.
    #[error("{0}")]
    Draft(&'static str),
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A schema of messages or data.
    DataSchema,
    /// A hyperty.
    Hyperty,
    /// A proxy of an identity provider.
    IdpProxy,
    /// A protocol stub.
    ProtocolStub,
    /// A runtime.
    Runtime,
    /// A service of a node.
    Service,
}

impl Kind {
    /// Every kind, in the order of their names.
    pub const ALL: [Self; 6] = [
        Self::DataSchema,
        Self::Hyperty,
        Self::IdpProxy,
        Self::ProtocolStub,
        Self::Runtime,
        Self::Service,
    ];

    /// The kind as it stands in paths.
    pub fn as_str(self) -> &'static str {
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
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.as_str() == text).ok_or_else(|| ModelError::Kind(text.to_owned()))
    }
}

/// An object's name: 1 to 255 bytes of UTF-8, no control characters, no `/`, not `.` or `..`. Case counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        if !(1..=255).contains(&text.len()) {
            return Err(ModelError::Name("it has 1 to 255 bytes"));
        }
        if text.chars().any(|c| c.is_control() || c == '/') {
            return Err(ModelError::Name("it has no control character and no `/`"));
        }
        if text == "." || text == ".." {
            return Err(ModelError::Name("it is neither `.` nor `..`"));
        }
        Ok(Self(text))
    }
}

impl FromStr for Name {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        Self::try_from(text.to_owned())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which object: its kind and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Its name.
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

/// One published version; immutable but for `yanked`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The object.
    pub key: Key,
    /// The version.
    pub version: Version,
    /// A JSON object, bytes as published.
    pub descriptor: Vec<u8>,
    /// Of `descriptor`.
    pub digest: Digest,
    /// The code behind it.
    pub package: Option<Package>,
    /// Who vouches for it.
    pub signatures: Vec<DescriptorSignature>,
    /// Who published it; none for the store's owner.
    pub publisher: Option<Identity>,
    /// When.
    pub published: UnixTime,
    /// Taken back.
    pub yanked: bool,
    /// The change of the store that made or last yanked this version.
    pub revision: u64,
}

/// The code behind a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Of its bytes.
    pub digest: Digest,
    /// How many bytes.
    pub length: u64,
    /// RFC 9110, section 8.3.
    pub media_type: String,
    /// A JSON object.
    pub description: Vec<u8>,
}

/// A signature over a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorSignature {
    /// Who signed.
    pub identity: Identity,
    /// The signature.
    pub signature: Signature,
}

/// What is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The object.
    pub key: Key,
    /// The version.
    pub version: Version,
    /// A JSON object.
    pub descriptor: Vec<u8>,
    /// The code behind it.
    pub package: Option<Package>,
    /// Who vouches for it.
    pub signatures: Vec<DescriptorSignature>,
}

impl Draft {
    /// Checks every bound.
    ///
    /// # Errors
    /// [`ModelError`] says which one is broken.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.descriptor.len() > MAX_DESCRIPTOR {
            return Err(ModelError::Draft("the descriptor has more than 1 MiB"));
        }
        object(&self.descriptor).ok_or(ModelError::Draft("the descriptor is no JSON object"))?;
        if self.signatures.len() > MAX_SIGNATURES {
            return Err(ModelError::Draft("it has more than 8 signatures"));
        }
        if let Some(package) = &self.package {
            if package.media_type.len() > 255 || package.description.len() > MAX_DESCRIPTION {
                return Err(ModelError::Draft("the package's description is too long"));
            }
            object(&package.description).ok_or(ModelError::Draft("no JSON object"))?;
        }
        Ok(())
    }
}

fn object(bytes: &[u8]) -> Option<()> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    (value.is_object() && depth(&value) <= MAX_DEPTH).then_some(())
}

fn depth(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        serde_json::Value::Object(items) => 1 + items.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
