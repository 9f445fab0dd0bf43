//! An object with its versions, and how it is built from the store.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use levada_core::{Digest, UnixTime};

use super::layer::{self, PackageEntry, Prepared};
use crate::model::version::{latest_order, precedence};
use crate::model::{Key, Published, Version, VersionReq};

/// A version in the index.
#[derive(Clone, Debug)]
pub struct VersionEntry {
    /// The version.
    pub version: Version,
    /// SHA-256 of its descriptor.
    pub digest: Digest,
    /// SHA-256 and length in bytes of its package.
    pub package: Option<(Digest, u64)>,
    /// When it was published.
    pub published: UnixTime,
    /// Whether it is yanked.
    pub yanked: bool,
    /// The revision of its last change.
    pub revision: u64,
    media_type: Option<Arc<str>>,
}

/// An object.
#[derive(Debug)]
pub struct Object {
    /// Kind and name.
    pub key: Key,
    /// Ascending; versions of equal precedence are in the order of publication.
    pub versions: Box<[VersionEntry]>,
    pub(super) order: u64,
    /// The index and the descriptor of the newest version that is not yanked.
    newest: Option<(usize, Bytes)>,
}

impl Object {
    /// The newest version that is not yanked, and its descriptor.
    pub fn newest(&self) -> Option<(&VersionEntry, &Bytes)> {
        let (index, descriptor) = self.newest.as_ref()?;
        Some((self.versions.get(*index)?, descriptor))
    }

    /// A version, yanked or not.
    pub fn version(&self, version: &Version) -> Option<&VersionEntry> {
        self.versions.iter().find(|entry| entry.version == *version)
    }

    /// The newest version within `range` that is not yanked.
    pub fn matching(&self, range: &VersionReq) -> Option<&VersionEntry> {
        let shown = |entry: &&VersionEntry| !entry.yanked && range.matches(&entry.version);
        self.versions.iter().rev().find(shown)
    }

    /// The descriptor of a version, if it is in memory.
    pub fn descriptor(&self, entry: &VersionEntry) -> Option<&Bytes> {
        let (newest, descriptor) = self.newest()?;
        (newest.version == entry.version).then_some(descriptor)
    }

    pub(super) fn packages(&mut self) -> impl Iterator<Item = (&(Digest, u64), &mut Arc<str>)> {
        self.versions
            .iter_mut()
            .filter_map(|entry| Some((entry.package.as_ref()?, entry.media_type.as_mut()?)))
    }
}

/// An object in a hash set, looked up by its key.
#[derive(Clone)]
pub(super) struct ByKey(pub Arc<Object>);

impl Borrow<Key> for ByKey {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

/// Builds an object from its versions.
pub(super) struct ObjectBuilder {
    order: u64,
    versions: Vec<VersionEntry>,
    newest: Option<Newest>,
}

struct Newest {
    version: Version,
    descriptor: Bytes,
    package: Option<PackageEntry>,
}

impl ObjectBuilder {
    pub fn new(order: u64) -> Self {
        Self { order, versions: Vec::new(), newest: None }
    }

    /// Adds a version; versions are added in the order of publication.
    pub fn add(&mut self, published: Published) {
        let Published { version, descriptor, digest, package, yanked, revision, .. } = published;
        self.versions.push(VersionEntry {
            version: version.clone(),
            digest,
            package: package.as_ref().map(|package| (package.digest, package.length)),
            published: published.published,
            yanked,
            revision,
            media_type: package.as_ref().map(|package| package.media_type.as_str().into()),
        });
        let newer = |newest: &Newest| latest_order(&version, &newest.version).is_ge();
        if !yanked && self.newest.as_ref().is_none_or(newer) {
            let package = package.map(layer::package_entry);
            self.newest = Some(Newest { version, descriptor: share(descriptor), package });
        }
    }

    /// The newest added version that is not yanked.
    pub fn newest(&self) -> Option<&Version> {
        self.newest.as_ref().map(|newest| &newest.version)
    }

    /// Sets the descriptor of the newest version, if the versions were added without descriptors.
    pub fn set_descriptor(&mut self, descriptor: Vec<u8>) {
        if let Some(newest) = &mut self.newest {
            newest.descriptor = share(descriptor);
        }
    }

    /// The object, and its entry in the reTHINK compatibility layer.
    pub fn finish(self, key: Key) -> (Object, Option<Prepared>) {
        let Self { order, mut versions, newest } = self;
        // The sort is stable: versions of equal precedence stay in the order of publication.
        versions.sort_by(|a, b| precedence(&a.version, &b.version));
        let versions = versions.into_boxed_slice();
        let Some(Newest { version, descriptor, package }) = newest else {
            return (Object { key, versions, order, newest: None }, None);
        };
        let prepared = layer::prepare(&key, order, &descriptor, package);
        let index = versions.iter().position(|entry| entry.version == version);
        let newest = index.map(|index| (index, descriptor));
        (Object { key, versions, order, newest }, prepared)
    }
}

/// Builds many objects on all processors, because the bodies of the reTHINK compatibility layer
/// take time.
pub(super) fn build_all(objects: Vec<(Key, ObjectBuilder)>) -> (Vec<Object>, Vec<Prepared>) {
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(16));
    let mut parts: Vec<Vec<(Key, ObjectBuilder)>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, object) in objects.into_iter().enumerate() {
        parts[index % threads].push(object);
    }
    let build = |part: Vec<(Key, ObjectBuilder)>| -> Vec<(Object, Option<Prepared>)> {
        part.into_iter().map(|(key, builder)| builder.finish(key)).collect()
    };
    let mut built = Vec::new();
    let mut prepared = Vec::new();
    thread::scope(|scope| {
        let workers: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(move || build(part))).collect();
        for (object, body) in workers.into_iter().filter_map(|worker| worker.join().ok()).flatten()
        {
            built.push(object);
            prepared.extend(body);
        }
    });
    // Makes the result independent of the threads.
    built.sort_unstable_by_key(|object| object.order);
    (built, prepared)
}

/// Converts to `Bytes` that can be cloned without a copy.
fn share(bytes: Vec<u8>) -> Bytes {
    // Without the spare capacity that a vector may have.
    Bytes::from(bytes.into_boxed_slice())
}
