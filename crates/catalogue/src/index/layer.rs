//! The reTHINK compatibility layer of an index: its objects with their bodies, which take time to
//! build.

use bytes::Bytes;

use crate::model::{Key, Package};
use crate::rethink::{Catalogue, Entry, PathType};

pub(super) use crate::rethink::{PackageEntry, Prepared};

/// For each type, the names that `default` stands for in the reTHINK compatibility layer: the first
/// that exists is used.
pub type Defaults = Vec<(PathType, Vec<String>)>;

/// The objects that the layer shows.
pub(super) type Layer = Catalogue;

/// A layer without objects.
pub(super) fn empty(defaults: &Defaults) -> Layer {
    let mut layer = Catalogue::new();
    for (of, names) in defaults {
        layer.set_default(*of, names.clone());
    }
    layer
}

/// What the layer needs of a package.
pub(super) fn package_entry(package: Package) -> PackageEntry {
    PackageEntry {
        // Without the spare capacity that a vector may have.
        description: Bytes::from(package.description.into_boxed_slice()),
        digest: package.digest,
        length: package.length,
    }
}

/// Builds the bodies of an object. `None` for one that the reTHINK catalogue would reject: it is
/// not shown there; `/v1` has it.
pub(super) fn prepare(
    key: &Key,
    order: u64,
    descriptor: &Bytes,
    package: Option<PackageEntry>,
) -> Option<Prepared> {
    if !key.kind.is_rethink() {
        return None;
    }
    let entry = Entry { key: key.clone(), order, descriptor: descriptor.clone(), package };
    Prepared::new(entry).ok()
}
