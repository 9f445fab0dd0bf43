//! Garbage collection: a package is deleted by a record that is refused if a publication has
//! claimed the package since.

use std::time::Duration;

use levada_core::{Digest, UnixTime};

use super::engine::{Write, WriteError};
use super::inner::Cluster;
use crate::store::embedded::replica::{Author, Record};
use crate::store::{Collected, StoreError};

/// After this time without a record, an upload has failed. No upload takes so long.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

impl Cluster {
    /// Deletes the blobs that no version refers to and that were stored more than `grace` before
    /// the author's time.
    pub async fn collect(&self, grace: Duration, author: Author) -> Result<Collected, StoreError> {
        let latest = UnixTime(author.time.0.saturating_sub(grace.as_secs()));
        let mut collected = Collected::default();
        for (digest, number) in self.local.garbage(latest)? {
            if let Some(length) = self.delete(&digest, number).await? {
                collected.blobs += 1;
                collected.bytes += length;
            }
        }
        if collected.blobs > 0 {
            self.note(&Record::Swept(collected.blobs, author)).await?;
        }
        self.sweep(author.time).await?;
        Ok(collected)
    }

    /// Deletes a blob, unless there is a record about it behind `number`. Its length.
    async fn delete(&self, digest: &Digest, number: u64) -> Result<Option<u64>, StoreError> {
        let Some((_, stored)) = self.local.stored(digest)? else { return Ok(None) };
        let record = Record::Deleted(*digest);
        let subject = self.engine.subjects.package(digest);
        match self.engine.write(Write { subject, record: &record, expected: Some(number) }).await {
            Ok(number) => self.reached(number).await,
            // The next collection looks again.
            Err(WriteError::Changed | WriteError::Retry | WriteError::Uncertain) => {
                return Ok(None);
            }
            Err(WriteError::Failed(error)) => return Err(error),
        }
        if self.local.has_blob(digest)? {
            return Ok(None);
        }
        self.engine.drop_parts(digest, &stored.upload).await;
        Ok(Some(stored.length))
    }

    /// Deletes the parts of uploads that were never completed, or whose deletion failed.
    async fn sweep(&self, now: UnixTime) -> Result<(), StoreError> {
        let latest = UnixTime(now.0.saturating_sub(ORPHAN_AGE.as_secs()));
        let snapshot = self.engine.snapshot().await?.1.map(|snapshot| snapshot.stored.upload);
        for (digest, upload) in self.engine.uploads().await? {
            let stored = self.local.stored(&digest)?.map(|(_, stored)| stored.upload);
            if [snapshot, stored].contains(&Some(upload)) {
                continue;
            }
            let time = self.engine.time_of_part(&digest, &upload).await?;
            if time.is_some_and(|time| time <= latest) {
                self.engine.drop_parts(&digest, &upload).await;
            }
        }
        Ok(())
    }
}
