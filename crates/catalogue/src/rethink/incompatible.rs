//! Why an object is not shown under `/.well-known/`.

use thiserror::Error;

use super::Malformed;
use crate::model::{Kind, ModelError};

/// Why a descriptor with its package is not compatible with reTHINK's catalogue, and not shown
/// under `/.well-known/`.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Incompatible {
    /// reTHINK's catalogue does not have the type.
    #[error("objects of type `{0}` are not shown under /.well-known/")]
    Kind(Kind),
    /// The descriptor cannot be parsed.
    #[error("the descriptor is not JSON: {0}")]
    Descriptor(Malformed),
    /// The descriptor is not an object.
    #[error("the descriptor is not an object")]
    DescriptorForm,
    /// The descriptor has no package.
    #[error(
        "there is no package: neither a sourcePackage.json nor `sourcePackage` in the description"
    )]
    NoPackage,
    /// The description of the package cannot be parsed.
    #[error("the description of the package is not JSON: {0}")]
    Package(Malformed),
    /// The description of the package is not an object.
    #[error("the description of the package is not an object")]
    PackageForm,
    /// The package has no class name, or it is not a scalar.
    #[error("the package has no `sourceCodeClassname` that is a text")]
    ClassName,
    /// There is neither a scalar `sourceCode` nor a file with the code.
    #[error(
        "the package has no code: neither a `sourceCode` that is a text nor a file named sourceCode…"
    )]
    NoCode,
    /// A mandatory attribute is missing.
    #[error("`{0}` is missing, which is mandatory for this type")]
    Missing(&'static str),
    /// `objectName` is null, a list or an object.
    #[error("`objectName` is not a text")]
    Name,
    /// The name is reserved for the object that the operator chose.
    #[error("`default` is not allowed as a name")]
    Default,
    /// The descriptor names another object than its key.
    #[error("`objectName` is {found:?}, but it is published as {key:?}")]
    OtherName {
        /// The name in the descriptor.
        found: String,
        /// The key of the object.
        key: String,
    },
    /// The name is not valid for this catalogue.
    #[error("`objectName` cannot be published: {0}")]
    Unpublishable(ModelError),
    /// The body would exceed this number of bytes.
    #[error("its body would have more than {0} bytes")]
    TooLong(usize),
}
