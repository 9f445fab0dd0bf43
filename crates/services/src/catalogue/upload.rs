//! Packages on their way into the store. One whose sender was cut off is kept for a while, so that it can go on
//! where it stopped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use levada_catalogue::store::{BlobWriter, StoreError};
use levada_core::{Digest, Identity};
use tokio::task::spawn_blocking;

use super::handle::{CatalogueHandle, HandleError};

/// Uploads at a time.
const MOST_RUNNING: usize = 32;
/// Those of one identity, so that nobody takes all places.
const MOST_OF_ONE: usize = 8;
/// Uploads that were cut off and are kept.
const MOST_KEPT: usize = 8;
/// For how long.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The uploads of one store.
#[derive(Clone, Default)]
pub(super) struct Uploads(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// Whose uploads are under way.
    running: Vec<Option<Identity>>,
    /// The oldest first.
    kept: Vec<Kept>,
}

/// Who uploads what.
type Who = (Option<Identity>, Digest);

struct Kept {
    who: Who,
    writer: Box<dyn BlobWriter>,
    offset: u64,
    since: Instant,
}

/// One upload. Dropped before it is finished, it is kept.
pub(super) struct Upload {
    uploads: Uploads,
    who: Who,
    /// `None` once it failed or is finished.
    writer: Option<Box<dyn BlobWriter>>,
    offset: u64,
}

impl Uploads {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The upload of `by` that was cut off, or a new one; `None` if too many are under way.
    pub(super) async fn begin(
        &self,
        handle: &CatalogueHandle,
        by: Option<Identity>,
        digest: Digest,
    ) -> Result<Option<Upload>, HandleError> {
        let who = (by, digest);
        let kept = {
            let mut table = self.table();
            table.expire();
            let own = table.running.iter().filter(|one| **one == by && by.is_some()).count();
            if table.running.len() >= MOST_RUNNING || own >= MOST_OF_ONE {
                return Ok(None);
            }
            table.running.push(by);
            let place = table.kept.iter().position(|kept| kept.who == who);
            place.map(|place| table.kept.remove(place))
        };
        // Holds the place from here on, whatever happens.
        let mut upload = Upload { uploads: self.clone(), who, writer: None, offset: 0 };
        match kept {
            Some(kept) => (upload.writer, upload.offset) = (Some(kept.writer), kept.offset),
            None => upload.writer = Some(handle.with(|store| store.begin_blob()).await?),
        }
        Ok(Some(upload))
    }
}

impl Table {
    fn expire(&mut self) {
        self.kept.retain(|kept| kept.since.elapsed() < KEPT_FOR);
    }
}

impl Upload {
    /// How many bytes are there.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends `part`.
    pub(super) async fn write(mut self, part: Vec<u8>) -> Result<Self, HandleError> {
        // If nobody waits for it any more, it is kept when the thread is through.
        let work = move || {
            let Some(mut writer) = self.writer.take() else {
                return Err(StoreError::Broken);
            };
            writer.write(&part)?;
            self.offset += part.len() as u64;
            self.writer = Some(writer);
            Ok(self)
        };
        Ok(spawn_blocking(work).await.map_err(|_| HandleError::Closing)??)
    }

    /// Puts it into the store, if it has the digest that it was announced with.
    pub(super) async fn finish(mut self) -> Result<(), HandleError> {
        let work = move || {
            let Some(writer) = self.writer.take() else {
                return Err(StoreError::Broken);
            };
            writer.finish(Some(&self.who.1)).map(drop)
        };
        Ok(spawn_blocking(work).await.map_err(|_| HandleError::Closing)??)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut table = self.uploads.table();
        if let Some(place) = table.running.iter().position(|one| *one == self.who.0) {
            table.running.swap_remove(place);
        }
        table.expire();
        let Some(writer) = self.writer.take().filter(|_| self.offset > 0) else { return };
        table.kept.retain(|kept| kept.who != self.who);
        if table.kept.len() >= MOST_KEPT {
            table.kept.remove(0);
        }
        let since = Instant::now();
        table.kept.push(Kept { who: self.who, writer, offset: self.offset, since });
    }
}

#[cfg(test)]
mod tests {
    use levada_catalogue::store::embedded::EmbeddedStore;
    use levada_core::SystemClock;

    use super::*;

    #[tokio::test]
    async fn one_identity_does_not_take_all_places() {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(folder.path()).unwrap();
        let handle = CatalogueHandle::new(Arc::new(store), Arc::new(SystemClock));
        let [alice, bob] = [1, 2].map(|byte| Some(Identity::from_bytes([byte; 32])));
        let mut running = Vec::new();
        for number in 0..MOST_OF_ONE {
            let number = u8::try_from(number).unwrap();
            let upload = handle.uploads.begin(&handle, alice, [number; 32]).await.unwrap();
            running.push(upload.unwrap());
        }
        assert!(handle.uploads.begin(&handle, alice, [99; 32]).await.unwrap().is_none());
        assert!(handle.uploads.begin(&handle, bob, [99; 32]).await.unwrap().is_some());
        running.pop();
        assert!(handle.uploads.begin(&handle, alice, [99; 32]).await.unwrap().is_some());
    }
}
