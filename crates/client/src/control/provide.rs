//! Packages in requests to the node.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A request to provide a package.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProvideRequest {
    /// The catalogue that it comes from, NODE/SERVICE; of several nodes a list, separated by
    /// commas.
    pub at: String,
    /// The object, TYPE/NAME.
    pub object: String,
    /// Its version.
    pub version: String,
    /// The digest of the package, in text form.
    pub digest: String,
    /// The absolute path of its file, which is copied.
    pub path: PathBuf,
}
