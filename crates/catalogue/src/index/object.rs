//! An object with its versions, and how it is built from what the store has.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use levada_core::{Digest, UnixTime};

use super::share;
use crate::model::version::{latest_order, precedence};
use crate::model::{Key, Kind, Published, Version, VersionReq};
use crate::rethink::{Entry, PackageEntry, Prepared};

/// What is kept of each version.
#[derive(Clone, Debug)]
pub struct VersionEntry {
    /// Which one.
    pub version: Version,
    /// SHA-256 of its descriptor.
    pub digest: Digest,
    /// SHA-256 of its package and how many bytes that has.
    pub package: Option<(Digest, u64)>,
    /// When it was published.
    pub published: UnixTime,
    /// Whether it was taken back.
    pub yanked: bool,
    /// Its last change.
    pub revision: u64,
    media_type: Option<Arc<str>>,
}

/// An object.
#[derive(Debug)]
pub struct Object {
    /// Which one.
    pub key: Key,
    /// Ascending; of equal ones in the order of publication.
    pub versions: Box<[VersionEntry]>,
    pub(super) order: u64,
    /// Where the newest is that is not yanked, and its descriptor.
    newest: Option<(usize, Bytes)>,
}

impl Object {
    /// The newest version that is not yanked, and its descriptor.
    pub fn newest(&self) -> Option<(&VersionEntry, &Bytes)> {
        let (place, descriptor) = self.newest.as_ref()?;
        Some((self.versions.get(*place)?, descriptor))
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

/// An object, found by its key.
#[derive(Clone)]
pub(super) struct Named(pub Arc<Object>);

impl Borrow<Key> for Named {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl Hash for Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Named {}

/// An object in the making.
pub(super) struct Building {
    order: u64,
    versions: Vec<VersionEntry>,
    newest: Option<Newest>,
}

struct Newest {
    version: Version,
    descriptor: Bytes,
    package: Option<PackageEntry>,
}

impl Building {
    pub fn new(order: u64) -> Self {
        Self { order, versions: Vec::new(), newest: None }
    }

    /// Adds the next version; they come as they were published.
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
            let package = package.map(|package| PackageEntry {
                description: share(package.description),
                digest: package.digest,
                length: package.length,
            });
            self.newest = Some(Newest { version, descriptor: share(descriptor), package });
        }
    }

    /// The newest version that is not yanked, of those that were added.
    pub fn newest(&self) -> Option<&Version> {
        self.newest.as_ref().map(|newest| &newest.version)
    }

    /// Gives the newest version the descriptor that it was added without.
    pub fn describe(&mut self, descriptor: Vec<u8>) {
        if let Some(newest) = &mut self.newest {
            newest.descriptor = share(descriptor);
        }
    }

    /// The object, and what the original's layer has for it.
    pub fn finish(self, key: Key) -> (Object, Option<Prepared>) {
        let Self { order, mut versions, newest } = self;
        // It is stable: equal ones stay as they were published.
        versions.sort_by(|a, b| precedence(&a.version, &b.version));
        let versions = versions.into_boxed_slice();
        let Some(Newest { version, descriptor, package }) = newest else {
            return (Object { key, versions, order, newest: None }, None);
        };
        let prepared = (key.kind != Kind::Service).then(|| {
            let entry = Entry { key: key.clone(), order, descriptor: descriptor.clone(), package };
            // What the original would not have shown is not shown there; `/v1` has it.
            Prepared::new(entry).ok()
        });
        let place = versions.iter().position(|entry| entry.version == version);
        let newest = place.map(|place| (place, descriptor));
        (Object { key, versions, order, newest }, prepared.flatten())
    }
}

/// Builds many at once, on all processors: the bodies of the original's layer take time.
pub(super) fn build_all(objects: Vec<(Key, Building)>) -> (Vec<Object>, Vec<Prepared>) {
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(16));
    let mut parts: Vec<Vec<(Key, Building)>> = (0..threads).map(|_| Vec::new()).collect();
    for (place, one) in objects.into_iter().enumerate() {
        parts[place % threads].push(one);
    }
    let build = |part: Vec<(Key, Building)>| -> Vec<(Object, Option<Prepared>)> {
        part.into_iter().map(|(key, building)| building.finish(key)).collect()
    };
    let (mut built, mut prepared) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let workers: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(move || build(part))).collect();
        for (object, body) in workers.into_iter().filter_map(|worker| worker.join().ok()).flatten()
        {
            built.push(object);
            prepared.extend(body);
        }
    });
    // What depends on their order is to be the same each time.
    built.sort_unstable_by_key(|object| object.order);
    (built, prepared)
}
