//! Why something is no object that the original would have shown.

use thiserror::Error;

use super::Malformed;
use crate::model::{Kind, ModelError};

/// Why a descriptor with its package is not shown under `/.well-known/`.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// The original had no such type.
    #[error("objects of type `{0}` are not shown under /.well-known/")]
    Kind(Kind),
    /// No value in it, or none at all.
    #[error("the descriptor is not JSON: {0}")]
    Descriptor(Malformed),
    /// The descriptor is a list, a text, …
    #[error("the descriptor is not an object")]
    DescriptorForm,
    /// There is no code behind it.
    #[error(
        "there is no package: neither a sourcePackage.json nor `sourcePackage` in the description"
    )]
    NoPackage,
    /// As [`Self::Descriptor`], of the package.
    #[error("the description of the package is not JSON: {0}")]
    Package(Malformed),
    /// The package's description is a list, a text, …
    #[error("the description of the package is not an object")]
    PackageForm,
    /// The package has no class name, or one that is no text.
    #[error("the package has no `sourceCodeClassname` that is a text")]
    ClassName,
    /// There is neither a text `sourceCode` nor a file of it.
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
    /// The name stands for what an operator chose.
    #[error("`default` is not allowed as a name")]
    Default,
    /// The descriptor names another object than its key.
    #[error("`objectName` is {found:?}, but it is published as {key:?}")]
    OtherName {
        /// What the descriptor says.
        found: String,
        /// What it was published as.
        key: String,
    },
    /// No name that can be published.
    #[error("`objectName` cannot be published: {0}")]
    Unpublishable(ModelError),
    /// The answer would be too long.
    #[error("its body would have more than {0} bytes")]
    TooLong(usize),
}
