//! The identifiers of objects.

use std::fmt;
use std::str::FromStr;

use super::error::excerpt;
use super::{ModelError, Name};

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A schema of the data that programs exchange.
    DataSchema,
    /// A program that a runtime loads.
    Hyperty,
    /// A stub that communicates with an identity provider.
    IdpProxy,
    /// Any program or data, with its package.
    Package,
    /// A stub that implements the protocol of a domain.
    ProtocolStub,
    /// A runtime that loads hyperties and stubs.
    Runtime,
    /// A service of a node.
    Service,
}

impl Kind {
    /// Every kind, sorted by its text.
    pub const ALL: [Self; 7] = [
        Self::DataSchema,
        Self::Hyperty,
        Self::IdpProxy,
        Self::Package,
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
            Self::Package => "package",
            Self::ProtocolStub => "protocolstub",
            Self::Runtime => "runtime",
            Self::Service => "service",
        }
    }

    /// Returns true if reTHINK's catalogue has objects of this type. All others are shown by the
    /// API for programs only.
    pub const fn is_rethink(self) -> bool {
        !matches!(self, Self::Package | Self::Service)
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
        found.ok_or_else(|| ModelError::Kind(excerpt(text)))
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
