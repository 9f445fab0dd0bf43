//! What stands in for `cluster` in a build without the feature `cluster`: the same types as far as
//! other crates name them. There are no [`Options`], so that no store can be opened.

use std::convert::Infallible;
use std::path::Path;

use super::embedded::Examined;
use super::{NoStore, StoreError};

/// How a store is opened, of which there is no value.
pub struct Options(Infallible);

/// A node's store of a catalogue on several nodes, of which there is none.
pub struct ClusterStore(Infallible);

impl ClusterStore {
    /// Opens the replica in a folder.
    ///
    /// # Errors
    /// None.
    pub fn open(_: &Path, options: &Options) -> Result<NoStore, StoreError> {
        match options.0 {}
    }

    /// Finds no replica.
    ///
    /// # Errors
    /// None.
    pub fn examine(_: &Path) -> Result<Option<Examined>, StoreError> {
        Ok(None)
    }

    /// Finds no replica.
    pub fn exists(_: &Path) -> bool {
        false
    }
}
