//! Errors of objects, versions, packages and JSON texts.

use levada_core::Identity;
use thiserror::Error;

use super::{
    MAX_DESCRIPTOR, MAX_LEVELS, MAX_MEDIA_TYPE, MAX_NAME, MAX_PACKAGE_DESCRIPTION, MAX_SIGNATURES,
    MAX_VERSION,
};

/// Why a value cannot be part of a catalogue.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ModelError {
    /// Not the text of a [`super::Kind`].
    #[error(
        "unknown type {0:?}: use dataschema, hyperty, idp-proxy, package, protocolstub, runtime \
         or service"
    )]
    Kind(String),
    /// Not a valid [`super::Name`].
    #[error(
        "an object's name has 1 to {MAX_NAME} bytes, no control character and no `/`, and is neither `.` nor `..`"
    )]
    Name,
    /// Not `KIND/NAME`.
    #[error("an object is written TYPE/NAME, such as `hyperty/Connector`")]
    Key,
    /// A version longer than [`MAX_VERSION`] bytes.
    #[error("the version has {0} bytes: at most {MAX_VERSION} are allowed")]
    Version(usize),
    /// Not the text of a digest.
    #[error("a digest is `sha256:` and 64 lower-case hexadecimal digits")]
    Digest,
    /// More bytes than [`MAX_DESCRIPTOR`].
    #[error("the descriptor has {0} bytes: at most {MAX_DESCRIPTOR} are allowed")]
    DescriptorLength(usize),
    /// The descriptor is not a valid JSON object.
    #[error("the descriptor is not a JSON object that can be published: {0}")]
    Descriptor(JsonError),
    /// More bytes than [`MAX_PACKAGE_DESCRIPTION`].
    #[error(
        "the description of the package has {0} bytes: at most {MAX_PACKAGE_DESCRIPTION} are allowed"
    )]
    PackageDescriptionLength(usize),
    /// The description of the package is not a valid JSON object.
    #[error("the description of the package is not a JSON object that can be published: {0}")]
    PackageDescription(JsonError),
    /// Not a media type of RFC 9110 section 8.3.1, or longer than [`MAX_MEDIA_TYPE`].
    #[error(
        "{0:?} is not a media type such as `text/javascript`, of at most {MAX_MEDIA_TYPE} bytes"
    )]
    MediaType(String),
    /// More signatures than [`MAX_SIGNATURES`].
    #[error("there are {0} signatures: at most {MAX_SIGNATURES} are allowed")]
    Signatures(usize),
    /// A signature that is not by its identity, or covers another digest.
    #[error(
        "the signature of {0} does not verify: it is over another descriptor, version or package, or forged"
    )]
    Signature(Identity),
}

/// Where a text violates [`super::check_object`].
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("{fault}, at byte {at}")]
pub struct JsonError {
    /// The offset in bytes, from 0.
    pub at: usize,
    /// The violation.
    pub fault: JsonFault,
}

/// How a text violates [`super::check_object`].
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum JsonFault {
    /// RFC 8259 section 8.1.
    #[error("it is not UTF-8")]
    Utf8,
    /// A violation of the grammar of RFC 8259.
    #[error("it is not well-formed")]
    Syntax,
    /// The outermost value is not an object.
    #[error("it is not an object")]
    NotAnObject,
    /// Text after the object.
    #[error("text follows the object")]
    Trailing,
    /// More than [`MAX_LEVELS`] levels.
    #[error("it has more than {MAX_LEVELS} levels")]
    TooDeep,
    /// RFC 7493 section 2.3: parsers differ in the value that they choose for a duplicate name.
    #[error("an object has the same name twice")]
    DuplicateName,
    /// RFC 7493 section 2.1: an unpaired surrogate is not a character.
    #[error("an escape is an unpaired surrogate")]
    Surrogate,
}

/// The start of a text, for an error.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
