//! Packages: their parts are in the engine, and the folder of blobs is a cache of whole packages.

use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use levada_core::Digest;
use tokio::time::timeout;

use super::connect::unavailable;
use super::engine::{Write, WriteError, random_id};
use super::inner::Cluster;
use super::publish::Attempt;
use crate::store::embedded::Upload;
use crate::store::embedded::replica::{Record, Stored, UploadId};
use crate::store::{Blob, BlobWriter, StoreError};

/// The length of a part, in bytes; the last may be shorter.
const PART: usize = 512 * 1024;
/// How many parts are under way at a time, of one package.
const IN_FLIGHT: usize = 8;
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
    /// Writes the parts of a blob, and then the record that it is stored. False if it was deleted at once: to be repeated.
    async fn store(&self, digest: Digest, length: u64, content: Blob) -> Result<bool, StoreError> {
        let upload = random_id()?;
        let parts = stream::iter(Parts { content, number: 0 });
        let add = |part: Result<(u64, Bytes), StoreError>| async move {
            let (number, bytes) = part?;
            self.add_part(self.engine.subjects.part(&digest, &upload, number), bytes).await
        };
        parts.map(add).buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
        let record = Record::Stored(Stored { digest, length, upload, claim: false });
        let subject = self.engine.subjects.package(&digest);
        let mut attempt = Attempt::begin(self.write_timeout);
        let mut before = self.local.stored(&digest)?;
        loop {
            // A record that is written late must not replace a newer one, whose parts are others.
            let written = match self.number_before(&before, &subject).await {
                Some(number) => {
                    let expected = Some(number);
                    let write = Write { subject: subject.clone(), record: &record, expected };
                    self.engine.write(write).await
                }
                None => Err(WriteError::Retry),
            };
            if let Some(number) = attempt.next(written).await? {
                self.reached(number).await;
                if let Some((_, before)) = before {
                    self.drop_parts(&digest, &before.upload).await;
                }
                return Ok(true);
            }
            self.catch_up(&subject).await;
            let known = self.local.stored(&digest)?;
            match &known {
                Some((_, known)) if known.upload == upload => return Ok(true),
                // Another upload, or the same one as before, which a version has claimed.
                Some((_, other)) if before.is_none_or(|(_, old)| old.upload != other.upload) => {
                    self.drop_parts(&digest, &upload).await;
                    return Ok(true);
                }
                None if attempt.is_uncertain => return Ok(false),
                _ => before = known,
            }
        }
    }

    /// The last record about a package; also one that deleted it. `None` if the engine does not say.
    async fn number_before(&self, known: &Option<(u64, Stored)>, subject: &str) -> Option<u64> {
        match known {
            Some((number, _)) => Some(*number),
            None => self.engine.last(subject).await.ok(),
        }
    }

    async fn add_part(&self, subject: String, bytes: Bytes) -> Result<(), StoreError> {
        let mut attempt = Attempt::begin(self.write_timeout);
        loop {
            let added = self.engine.add_part(subject.clone(), bytes.clone()).await;
            if attempt.next(added.map(|()| 0)).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// Deletes the parts of an upload that no record names. What fails is left to the garbage collection.
    pub async fn drop_parts(&self, digest: &Digest, upload: &UploadId) {
        let subject = self.engine.subjects.upload_parts(digest, upload);
        if let Ok(parts) = self.engine.parts().await
            && let Err(error) = parts.purge().filter(subject).await
        {
            tracing::debug!(%error, "parts of a package are left");
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
        let engine = self.engine.parts().await?;
        let mut file = Upload::begin(&self.local)?;
        let count = stored.length.div_ceil(PART as u64);
        let parts = stream::iter(0..count).map(|number| self.part(&engine, stored, number));
        let mut parts = parts.buffered(IN_FLIGHT);
        while let Some(bytes) = parts.next().await {
            file.write(&bytes?)?;
        }
        file.complete(Some(&stored.digest))?;
        let content = file.content()?;
        self.keep(&mut file, &stored.digest, stored.length)?;
        Ok(content)
    }

    async fn part(
        &self,
        engine: &Stream<()>,
        stored: &Stored,
        number: u64,
    ) -> Result<Bytes, StoreError> {
        let subject = self.engine.subjects.part(&stored.digest, &stored.upload, number);
        // The server that answers may not have it yet; the leader has.
        if let Ok(part) = engine.direct_get_last_for_subject(subject.as_str()).await {
            return Ok(part.payload);
        }
        let part = engine.get_last_raw_message_by_subject(&subject).await;
        Ok(part.map_err(|error| unavailable(&error))?.payload)
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

/// The parts of a blob, with their numbers.
struct Parts {
    content: Blob,
    number: u64,
}

impl Iterator for Parts {
    type Item = Result<(u64, Bytes), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = match &mut self.content {
            Blob::Bytes(bytes) => bytes.split_to(bytes.len().min(PART)),
            Blob::File(file, _) => {
                let mut bytes = Vec::with_capacity(PART);
                if let Err(error) = file.take(PART as u64).read_to_end(&mut bytes) {
                    return Some(Err(unavailable(&error)));
                }
                bytes.into()
            }
        };
        let number = self.number;
        self.number += 1;
        (!bytes.is_empty()).then_some(Ok((number, bytes)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_cut_into_parts() {
        let bytes: Vec<u8> = (0..2 * PART + 5).map(|at| at as u8).collect();
        let content = Blob::Bytes(bytes.clone().into());
        let parts: Vec<_> = Parts { content, number: 0 }.map(Result::unwrap).collect();
        let lengths: Vec<_> = parts.iter().map(|(number, part)| (*number, part.len())).collect();
        assert_eq!(lengths, [(0, PART), (1, PART), (2, 5)]);
        assert_eq!(parts.iter().flat_map(|(_, part)| part.to_vec()).collect::<Vec<_>>(), bytes);
        assert_eq!(Parts { content: Blob::Bytes(Bytes::new()), number: 0 }.count(), 0);
    }
}
