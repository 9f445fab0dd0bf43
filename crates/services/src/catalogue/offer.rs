//! What a catalogue offers through the swarm of its node: packages, with the hash trees that are
//! stored beside them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_catalogue::model::{Package, digest_text};
use levada_catalogue::store::{Blob, Outboard, Store, StoreError};
use levada_core::Identity;
use levada_swarm::ChunkSize;
use levada_swarm::content::Source;

use crate::swarm::{Admission, Shares};

/// The shortest package that is offered, in bytes: a shorter one is fetched in less time than its
/// providers are met.
pub const MIN_PACKAGE: u64 = 1 << 20;
/// For how long a share waits for a client that was admitted. Its capability expires after the same
/// time.
pub const ADMISSION_TIME: Duration = Duration::from_secs(60);
/// The size of the chunks of a package.
const CHUNK: ChunkSize = ChunkSize::DEFAULT;

/// The admissions of one identity within [`ADMISSION_TIME`], each of which may keep a package open.
const MOST_ADMISSIONS: usize = 32;

/// The swarm of the node that serves a catalogue.
pub struct SwarmOffer {
    pub(super) shares: Arc<Shares>,
    pub(super) admission: Arc<dyn Admission>,
    /// The number of recent admissions.
    recent: Mutex<HashMap<Identity, usize>>,
}

/// A recent admission, as long as it is not dropped.
pub(super) struct Recent {
    offer: Arc<SwarmOffer>,
    reader: Identity,
}

impl SwarmOffer {
    /// Packages are shared by `shares`, and `admission` gives capabilities for them.
    pub fn new(shares: Arc<Shares>, admission: Arc<dyn Admission>) -> Arc<Self> {
        Arc::new(Self { shares, admission, recent: Mutex::default() })
    }

    /// Counts an admission; `None` if the reader has had too many.
    pub(super) fn count(self: &Arc<Self>, reader: Identity) -> Option<Recent> {
        let mut recent = self.lock();
        let count = recent.entry(reader).or_default();
        if *count >= MOST_ADMISSIONS {
            return None;
        }
        *count += 1;
        Some(Recent { offer: self.clone(), reader })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, usize>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Recent {
    fn drop(&mut self) {
        let mut recent = self.offer.lock();
        if let Some(count) = recent.get_mut(&self.reader) {
            *count -= 1;
            if *count == 0 {
                recent.remove(&self.reader);
            }
        }
    }
}

/// The stored hash tree, or one that is computed and stored now: the package is read, and must have
/// its digest.
pub(super) fn hash_tree(
    store: &dyn Store,
    package: &Package,
) -> Result<Option<Outboard>, StoreError> {
    let known = store.outboard(&package.digest)?;
    if let Some(known) = known.filter(|known| known.part == CHUNK.bytes()) {
        return Ok(Some(known));
    }
    let read = store.open_blob(&package.digest)?.map(Blob::digest);
    if !matches!(read, Some(Ok((digest, _))) if digest == package.digest) {
        return Ok(None);
    }
    let Some(source) = open(store, package, &[])? else { return Ok(None) };
    let root = source.id().root;
    let hashes = source.chunk_hashes().to_vec();
    let tree = Outboard { root, part: CHUNK.bytes(), hashes };
    // On a full disk, the next request computes it again.
    let _ = store.add_outboard(&package.digest, &tree);
    Ok(Some(tree))
}

/// The package as the source of a share; `None` if it is not a whole file.
pub(super) fn open(
    store: &dyn Store,
    package: &Package,
    hashes: &[[u8; 32]],
) -> Result<Option<Source>, StoreError> {
    let Some(Blob::File(file, length)) = store.open_blob(&package.digest)? else {
        return Ok(None);
    };
    let path = PathBuf::from(name(package));
    Ok(Source::of_file(file, length, path, CHUNK, hashes).ok().filter(|_| length == package.length))
}

/// The name of the share, which has no meaning for its peers: a component of a path.
pub(super) fn name(package: &Package) -> String {
    digest_text(&package.digest).replace(':', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::wire::Granted;

    struct Refusing;

    impl Admission for Refusing {
        fn admit(&self, _: Identity, _: &[u8; 32]) -> Result<Granted, String> {
            Err("refused".to_owned())
        }
    }

    #[test]
    fn admissions_are_counted_for_each_identity() {
        let offer = SwarmOffer::new(Arc::new(Shares::new(1)), Arc::new(Refusing));
        let [one, other] = [1, 2].map(|number| Identity::from_bytes([number; 32]));
        let mut recent: Vec<_> = (0..MOST_ADMISSIONS).map(|_| offer.count(one).unwrap()).collect();
        assert!(offer.count(one).is_none());
        assert!(offer.count(other).is_some());
        recent.pop();
        assert!(offer.count(one).is_some());
        drop(recent);
        assert!(offer.lock().is_empty());
    }
}
