//! What can be wrong with what is to be published.

use levada_core::Identity;
use thiserror::Error;

use super::{
    MAX_DESCRIPTOR, MAX_LEVELS, MAX_MEDIA_TYPE, MAX_NAME, MAX_PACKAGE_DESCRIPTION, MAX_SIGNATURES,
    version,
};

/// Why something is no part of a catalogue.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ModelError {
    /// No kind of object.
    #[error(
        "there is no type {0:?}: use dataschema, hyperty, idp-proxy, protocolstub, runtime or service"
    )]
    Kind(String),
    /// No name of an object.
    #[error(
        "an object's name has 1 to {MAX_NAME} bytes, no control character and no `/`, and is neither `.` nor `..`"
    )]
    Name,
    /// Not `KIND/NAME`.
    #[error("an object is written TYPE/NAME, such as `hyperty/Connector`")]
    Key,
    /// A version that is too long.
    #[error("the version has {0} bytes: at most {max} are allowed", max = version::MAX_LEN)]
    Version(usize),
    /// Not the text of a digest.
    #[error("a digest is `sha256:` and 64 lower-case hexadecimal digits")]
    Digest,
    /// More bytes than [`MAX_DESCRIPTOR`].
    #[error("the descriptor has {0} bytes: at most {MAX_DESCRIPTOR} are allowed")]
    DescriptorLength(usize),
    /// The descriptor is no JSON object.
    #[error("the descriptor is not a JSON object that can be published: {0}")]
    Descriptor(JsonError),
    /// More bytes than [`MAX_PACKAGE_DESCRIPTION`].
    #[error(
        "the description of the package has {0} bytes: at most {MAX_PACKAGE_DESCRIPTION} are allowed"
    )]
    PackageDescriptionLength(usize),
    /// The description of the package is no JSON object.
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
    /// A signature that is not by the identity that it names, or is over something else.
    #[error(
        "the signature of {0} does not verify: it is over another descriptor, version or package, or forged"
    )]
    Signature(Identity),
}

/// Where a text stops being a JSON object that everybody reads alike.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("{fault}, at byte {at}")]
pub struct JsonError {
    /// The offset in bytes, from 0.
    pub at: usize,
    /// What is wrong there.
    pub fault: JsonFault,
}

/// What is wrong with a text that should be a JSON object.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum JsonFault {
    /// RFC 8259 section 8.1.
    #[error("it is not UTF-8")]
    Utf8,
    /// Anything else than the grammar of RFC 8259 has there.
    #[error("it is not well-formed")]
    Syntax,
    /// A list, a number, … where an object must be.
    #[error("it is not an object")]
    NoObject,
    /// Something stands behind the object.
    #[error("something follows the object")]
    Trailing,
    /// More than [`MAX_LEVELS`] levels.
    #[error("it has more than {MAX_LEVELS} levels")]
    Levels,
    /// RFC 7493 section 2.3: what an object means that has a name twice depends on who reads it.
    #[error("an object has a name twice")]
    Twice,
    /// RFC 7493 section 2.1: half of a surrogate pair is no character.
    #[error("an escape is half of a surrogate pair")]
    Surrogate,
}

/// What of a text is shown in an error.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
