//! What stands in for `layer` in a build without the feature `rethink`: a layer that shows no
//! objects.

use std::convert::Infallible;

use bytes::Bytes;

use crate::model::{Key, Package};

/// The names that `default` stands for, of which there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defaults;

/// The objects that the layer shows: none.
#[derive(Default)]
pub(super) struct Layer;

/// What the layer needs of a package: nothing.
pub(super) struct PackageEntry;

/// An object with its bodies, of which there is none.
#[derive(Debug)]
pub(super) struct Prepared(Infallible);

impl Layer {
    /// Inserts an object.
    pub(super) fn put(&mut self, prepared: Prepared) {
        match prepared.0 {}
    }

    /// Removes no object.
    pub(super) fn remove(&mut self, _: &Key) {}
}

/// A layer without objects.
pub(super) fn empty(_: &Defaults) -> Layer {
    Layer
}

/// What the layer needs of a package.
pub(super) fn package_entry(_: Package) -> PackageEntry {
    PackageEntry
}

/// Builds nothing.
pub(super) fn prepare(_: &Key, _: u64, _: &Bytes, _: Option<PackageEntry>) -> Option<Prepared> {
    None
}
