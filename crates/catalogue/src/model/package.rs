//! Packages, without their code.

use levada_core::Digest;

use super::error::excerpt;
use super::{MAX_LEVELS, MAX_PACKAGE_DESCRIPTION, ModelError, check_object, media_type};

/// The code that belongs to a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// The length in bytes.
    pub length: u64,
    /// The media type (RFC 9110 section 8.3), at most [`super::MAX_MEDIA_TYPE`] bytes.
    pub media_type: String,
    /// reTHINK's `sourcePackage.json` without `sourceCode`: a JSON object of at most
    /// [`MAX_PACKAGE_DESCRIPTION`] bytes; `{}` if the package has no attributes.
    pub description: Vec<u8>,
}

impl Package {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        if !media_type::is_valid(&self.media_type) {
            return Err(ModelError::MediaType(excerpt(&self.media_type)));
        }
        if self.description.len() > MAX_PACKAGE_DESCRIPTION {
            return Err(ModelError::PackageDescriptionLength(self.description.len()));
        }
        check_object(&self.description, MAX_LEVELS).map_err(ModelError::PackageDescription)
    }
}
