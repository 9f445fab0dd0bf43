//! The data model: objects, their versions, their packages, and every limit on them. No I/O.

mod digest;
mod draft;
mod error;
mod json;
mod key;
mod limits;
mod media_type;
mod name;
mod package;
mod signature;
#[cfg(test)]
mod tests;
pub mod version;

pub use digest::{digest_text, parse_digest};
pub use draft::{Draft, Published};
pub use error::{JsonError, JsonFault, ModelError};
pub use json::check_object;
pub use key::{Key, Kind};
pub use limits::{
    MAX_DESCRIPTOR, MAX_LEVELS, MAX_MEDIA_TYPE, MAX_NAME, MAX_PACKAGE_DESCRIPTION, MAX_SIGNATURES,
    MAX_VERSION,
};
pub use name::Name;
pub use package::Package;
pub use signature::{DescriptorSignature, signed_digest};
pub use version::{Version, VersionReq};
