//! Uploads of packages. An interrupted upload is kept for a while, so that the client can resume
//! it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use levada_catalogue::store::{BlobWriter, Store, StoreError};
use levada_core::{Digest, Identity};

use super::blocking::{HandleError, blocking};

/// Uploads at a time.
const MAX_RUNNING: usize = 32;
/// Uploads at a time of one identity, so that no identity uses up [`MAX_RUNNING`].
const MAX_PER_IDENTITY: usize = 8;
/// Interrupted uploads that are kept.
const MAX_INTERRUPTED: usize = 8;
/// How long an interrupted upload is kept.
const RETENTION: Duration = Duration::from_secs(600);

/// The uploads of one store.
#[derive(Clone, Default)]
pub(super) struct Uploads(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// The identity of each running upload.
    running: Vec<Option<Identity>>,
    /// The oldest first.
    interrupted: Vec<Interrupted>,
}

/// The uploading identity and the digest of the package.
type UploadKey = (Option<Identity>, Digest);

struct Interrupted {
    key: UploadKey,
    writer: Box<dyn BlobWriter>,
    offset: u64,
    since: Instant,
}

/// One upload. If it is dropped before [`Upload::finish`], it is kept as interrupted.
pub(super) struct Upload {
    uploads: Uploads,
    key: UploadKey,
    /// `None` after a failure and after the end.
    writer: Option<Box<dyn BlobWriter>>,
    offset: u64,
}

impl Uploads {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resumes the interrupted upload of `by`, or starts a new one in `store`; `None` if too many
    /// are running.
    pub(super) async fn begin(
        &self,
        store: Arc<dyn Store>,
        by: Option<Identity>,
        digest: Digest,
    ) -> Result<Option<Upload>, HandleError> {
        let key = (by, digest);
        let interrupted = {
            let mut table = self.table();
            table.expire();
            let own = table.running.iter().filter(|one| **one == by && by.is_some()).count();
            if table.running.len() >= MAX_RUNNING || own >= MAX_PER_IDENTITY {
                return Ok(None);
            }
            table.running.push(by);
            let index = table.interrupted.iter().position(|one| one.key == key);
            index.map(|index| table.interrupted.remove(index))
        };
        // From here on, dropping the upload removes it from `running`.
        let mut upload = Upload { uploads: self.clone(), key, writer: None, offset: 0 };
        match interrupted {
            Some(one) => (upload.writer, upload.offset) = (Some(one.writer), one.offset),
            None => upload.writer = Some(blocking(move || store.begin_blob()).await?),
        }
        Ok(Some(upload))
    }
}

impl Table {
    fn expire(&mut self) {
        self.interrupted.retain(|one| one.since.elapsed() < RETENTION);
    }
}

impl Upload {
    /// How many bytes of the package have been written.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends `part`.
    pub(super) async fn write(mut self, part: Vec<u8>) -> Result<Self, HandleError> {
        // If the future is dropped, the write completes, and the upload is then kept as
        // interrupted.
        let work = move || {
            let Some(mut writer) = self.writer.take() else {
                return Err(StoreError::Broken);
            };
            writer.write(&part)?;
            self.offset += part.len() as u64;
            self.writer = Some(writer);
            Ok(self)
        };
        blocking(work).await
    }

    /// Adds the package to the store, if it has the announced digest.
    pub(super) async fn finish(mut self) -> Result<(), HandleError> {
        let work = move || {
            let Some(writer) = self.writer.take() else {
                return Err(StoreError::Broken);
            };
            writer.finish(Some(&self.key.1)).map(drop)
        };
        blocking(work).await
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut table = self.uploads.table();
        if let Some(index) = table.running.iter().position(|one| *one == self.key.0) {
            table.running.swap_remove(index);
        }
        table.expire();
        let Some(writer) = self.writer.take().filter(|_| self.offset > 0) else { return };
        table.interrupted.retain(|one| one.key != self.key);
        if table.interrupted.len() >= MAX_INTERRUPTED {
            table.interrupted.remove(0);
        }
        let since = Instant::now();
        table.interrupted.push(Interrupted { key: self.key, writer, offset: self.offset, since });
    }
}

#[cfg(test)]
mod tests {
    use levada_catalogue::store::embedded::EmbeddedStore;

    use super::*;

    #[tokio::test]
    async fn limits_the_uploads_of_each_identity() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(folder.path()).unwrap());
        let uploads = Uploads::default();
        let begin = |by, digest| uploads.begin(store.clone(), by, digest);
        let [alice, bob] = [1, 2].map(|byte| Some(Identity::from_bytes([byte; 32])));
        let mut running = Vec::new();
        for number in 0..MAX_PER_IDENTITY {
            let number = u8::try_from(number).unwrap();
            let upload = begin(alice, [number; 32]).await.unwrap();
            running.push(upload.unwrap());
        }
        assert!(begin(alice, [99; 32]).await.unwrap().is_none());
        assert!(begin(bob, [99; 32]).await.unwrap().is_some());
        running.pop();
        assert!(begin(alice, [99; 32]).await.unwrap().is_some());
    }
}
