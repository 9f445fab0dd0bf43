//! Packages: their [parts](super::parts) are in the engine, and the folder of blobs is a cache of
//! whole packages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::Digest;
use tokio::time::timeout;

use super::connect::unavailable;
use super::engine::{Write, WriteError, random_id};
use super::inner::Cluster;
use super::publish::Attempt;
use crate::store::embedded::Upload;
use crate::store::embedded::replica::{Record, Stored};
use crate::store::{Blob, BlobWriter, StoreError};

/// How long a call waits for the fetches of others.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// An upload: it is written to a file, and then to the engine.
pub struct ClusterUpload {
    // Dropped first: it has a reference to the database, which `Cluster` waits for.
    file: Upload,
    cluster: Arc<Cluster>,
}

impl ClusterUpload {
    pub fn begin(cluster: &Arc<Cluster>) -> Result<Self, StoreError> {
        Ok(Self { file: Upload::begin(&cluster.local)?, cluster: Arc::clone(cluster) })
    }
}

impl BlobWriter for ClusterUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write(bytes)
    }

    fn finish(mut self: Box<Self>, expected: Option<&Digest>) -> Result<(Digest, u64), StoreError> {
        let (digest, length) = self.file.complete(expected)?;
        let cluster = Arc::clone(&self.cluster);
        while !cluster.block_on(cluster.store(digest, length, self.file.content()?))? {}
        cluster.keep(&mut self.file, &digest, length)?;
        Ok((digest, length))
    }
}

impl Cluster {
    /// Writes the parts of a blob, and then the record that it is stored. False if it was deleted
    /// at once: to be repeated.
    async fn store(&self, digest: Digest, length: u64, content: Blob) -> Result<bool, StoreError> {
        let upload = random_id()?;
        let stored = Stored { digest, length, upload, claim: false };
        self.attempt()?;
        self.engine.add_parts(&stored, content).await?;
        let record = Record::Stored(stored);
        let subject = self.engine.subjects.package(&digest);
        let mut attempt = Attempt::begin(self.write_timeout);
        let mut before = self.local.stored(&digest)?;
        loop {
            // A record that is written late must not replace a newer one, whose parts are others.
            let writing = async {
                let expected = self.number_before(&before, &subject).await;
                let expected = Some(expected.ok_or(WriteError::Retry)?);
                let write = Write { subject: subject.clone(), record: &record, expected };
                self.engine.write(write).await
            };
            if let Some(number) = attempt.next(writing).await? {
                self.reached(number).await;
                if let Some((_, before)) = before {
                    self.engine.drop_parts(&digest, &before.upload).await;
                }
                return Ok(true);
            }
            self.catch_up(&subject, &attempt).await;
            let known = self.local.stored(&digest)?;
            match &known {
                Some((_, known)) if known.upload == upload => return Ok(true),
                // Another upload, or the same one as before, which a version has claimed.
                Some((_, other)) if before.is_none_or(|(_, old)| old.upload != other.upload) => {
                    self.engine.drop_parts(&digest, &upload).await;
                    return Ok(true);
                }
                None if attempt.is_uncertain => return Ok(false),
                _ => before = known,
            }
        }
    }

    /// The last record about a package; also one that deleted it. `None` if the engine does not
    /// say.
    async fn number_before(&self, known: &Option<(u64, Stored)>, subject: &str) -> Option<u64> {
        match known {
            Some((number, _)) => Some(*number),
            None => self.engine.last(subject).await.ok(),
        }
    }

    /// The content of a blob, from the cache or from the engine.
    pub fn blob(&self, digest: &Digest) -> Result<Option<Blob>, StoreError> {
        loop {
            let Some((_, stored)) = self.local.stored(digest)? else { return Ok(None) };
            if let Some(blob) = self.cached(&stored)? {
                return Ok(Some(blob));
            }
            match self.block_on(self.fetch(&stored)) {
                Ok(blob) => return Ok(Some(blob)),
                // The blob may have been uploaded again, or deleted, meanwhile.
                Err(error) => match self.local.stored(digest)? {
                    Some((_, now)) if now.upload == stored.upload => return Err(error),
                    _ => {}
                },
            }
        }
    }

    fn cached(&self, stored: &Stored) -> Result<Option<Blob>, StoreError> {
        let blob = self.local.blobs.read(&stored.digest)?;
        let blob = blob.filter(|blob| blob.length() == stored.length);
        if blob.is_some() {
            lock(&self.cache).touch(&stored.digest);
        }
        Ok(blob)
    }

    /// Fetches a blob into the cache. Of calls for one blob, the others wait for the first.
    async fn fetch(&self, stored: &Stored) -> Result<Blob, StoreError> {
        let turn = self.fetches[usize::from(stored.digest[0]) % self.fetches.len()].lock();
        let late = |_| unavailable("other packages are fetched from it at the moment");
        let _turn = timeout(FETCH_TIMEOUT, turn).await.map_err(late)?;
        if let Some(blob) = self.cached(stored)? {
            return Ok(blob);
        }
        let mut file = Upload::begin(&self.local)?;
        self.engine.fetch_parts(stored, |bytes| file.write(&bytes)).await?;
        file.complete(Some(&stored.digest))?;
        let content = file.content()?;
        self.keep(&mut file, &stored.digest, stored.length)?;
        Ok(content)
    }

    /// Takes a complete file into the cache, and others out of it if it is full.
    fn keep(&self, file: &mut Upload, digest: &Digest, length: u64) -> Result<(), StoreError> {
        let _placement = self.local.blobs.lock_placement();
        // It may have been deleted meanwhile.
        if !self.local.has_blob(digest)? {
            return Ok(());
        }
        file.place(digest)?;
        for old in lock(&self.cache).add(*digest, length) {
            self.local.blobs.remove(&self.local.blobs.path(&old))?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
