//! Uploads of blobs: one at a time, or many with few syncs.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use levada_core::{Digest, Hasher, sha256};
use rusqlite::Connection;

use super::files::NewFile;
use super::inner::Inner;
use super::row;
use crate::store::{Blob, BlobWriter, StoreError};

/// A blob that is being uploaded.
pub(in crate::store) struct Upload {
    inner: Arc<Inner>,
    path: PathBuf,
    file: Box<dyn NewFile>,
    hash: Hasher,
    length: u64,
    /// A write failed, so a part may be missing.
    broken: bool,
    /// The file was moved out of the temporary folder.
    moved: bool,
}

impl Upload {
    pub fn begin(inner: &Arc<Inner>) -> Result<Self, StoreError> {
        let path = inner.blobs.temp();
        let file =
            inner.blobs.files.create(&path).map_err(|error| StoreError::file(&path, error))?;
        let inner = Arc::clone(inner);
        let hash = Hasher::default();
        Ok(Self { inner, path, file, hash, length: 0, broken: false, moved: false })
    }

    fn failed(&self, error: io::Error) -> StoreError {
        StoreError::file(&self.path, error)
    }

    /// Ends the upload: the digest and the length of what was written, which is on disk and has no
    /// name yet.
    pub fn complete(&mut self, expected: Option<&Digest>) -> Result<(Digest, u64), StoreError> {
        if self.broken {
            return Err(StoreError::Broken);
        }
        let found = std::mem::take(&mut self.hash).finish();
        if let Some(expected) = expected.filter(|expected| **expected != found) {
            return Err(StoreError::WrongDigest { expected: *expected, found });
        }
        self.file.sync().map_err(|error| self.failed(error))?;
        Ok((found, self.length))
    }

    /// What was written, after [`Self::complete`].
    pub fn content(&self) -> Result<Blob, StoreError> {
        let content = self.inner.blobs.files.read(&self.path).transpose();
        let missing = || Err(io::ErrorKind::NotFound.into());
        content.unwrap_or_else(missing).map_err(|error| self.failed(error))
    }

    /// Makes it the content of the blob `digest`, after [`Self::complete`].
    pub fn place(&mut self, digest: &Digest) -> Result<(), StoreError> {
        self.inner.blobs.place(&self.path, digest)?;
        self.moved = true;
        Ok(())
    }
}

impl BlobWriter for Upload {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if self.broken {
            return Err(StoreError::Broken);
        }
        if let Err(error) = self.file.write(bytes) {
            self.broken = true;
            return Err(self.failed(error));
        }
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>, expected: Option<&Digest>) -> Result<(Digest, u64), StoreError> {
        let (found, length) = self.complete(expected)?;
        let inner = Arc::clone(&self.inner);
        let placement = inner.blobs.lock_placement();
        self.place(&found)?;
        let recorded = inner.record_blobs([(&found, length)]);
        drop(placement);
        if recorded.is_err() {
            inner.remove_unrecorded(&found);
        }
        recorded.map(|()| (found, length))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.moved {
            // If this fails, the next start removes the file.
            let _ = self.inner.blobs.files.remove(&self.path);
        }
    }
}

impl Inner {
    pub fn has_blob(&self, digest: &Digest) -> Result<bool, StoreError> {
        Ok(self.database.read(|connection| {
            connection.prepare_cached("SELECT 1 FROM blob WHERE digest = ?1")?.exists([digest])
        })?)
    }

    /// Stores many blobs with few syncs, and returns their digests, in order.
    pub fn add_blobs(&self, contents: &[&[u8]]) -> Result<Vec<Digest>, StoreError> {
        if contents.is_empty() {
            return Ok(Vec::new());
        }
        let digests: Vec<Digest> = contents.iter().map(|content| sha256(&[*content])).collect();
        // Identical contents are one blob.
        let new: BTreeMap<Digest, &[u8]> =
            digests.iter().copied().zip(contents.iter().copied()).collect();
        let files: Vec<(PathBuf, &[u8])> =
            new.values().map(|content| (self.blobs.temp(), *content)).collect();
        let moves = files.iter().zip(new.keys()).map(|((temp, _), digest)| (temp.clone(), *digest));
        let moves: Vec<(PathBuf, Digest)> = moves.collect();
        let written = self.blobs.files.create_all(self.blobs.folder(), &files);
        let written = written.map_err(|error| StoreError::file(self.blobs.folder(), error));
        let added = written.and_then(|()| self.place_and_record(&moves, &new));
        if added.is_err() {
            // If this fails, the next start removes the file.
            files.iter().for_each(|(temp, _)| drop(self.blobs.remove(temp)));
        }
        added.map(|()| digests)
    }

    fn place_and_record(
        &self,
        moves: &[(PathBuf, Digest)],
        new: &BTreeMap<Digest, &[u8]>,
    ) -> Result<(), StoreError> {
        let placement = self.blobs.lock_placement();
        let lengths = new.iter().map(|(digest, content)| (digest, content.len() as u64));
        let recorded = self.blobs.place_all(moves).and_then(|()| self.record_blobs(lengths));
        drop(placement);
        if recorded.is_err() {
            new.keys().for_each(|digest| self.remove_unrecorded(digest));
        }
        recorded
    }

    fn record_blobs<'a>(
        &self,
        blobs: impl IntoIterator<Item = (&'a Digest, u64)>,
    ) -> Result<(), StoreError> {
        let stored = row::from_time(self.clock.now());
        let replaced = self.database.write::<_, StoreError>(|tx| {
            let mut replaced = 0;
            for (digest, length) in blobs {
                replaced += u64::from(record_blob(tx, digest, length, stored)?);
            }
            Ok(replaced)
        })?;
        self.blobs.count_replaced(replaced);
        Ok(())
    }

    /// Removes the file of a failed upload, unless an earlier upload has inserted its row. If this
    /// fails, the next sweep removes the file.
    fn remove_unrecorded(&self, digest: &Digest) {
        let _placement = self.blobs.lock_placement_exclusive();
        if let Ok(false) = self.has_blob(digest) {
            let _ = self.blobs.remove(&self.blobs.path(digest));
        }
    }
}

/// Records that a blob is stored at the time `stored`. Whether it was before.
pub(super) fn record_blob(
    connection: &Connection,
    digest: &Digest,
    length: u64,
    stored: i64,
) -> rusqlite::Result<bool> {
    // A new upload restarts the grace period; a clock that was set back does not shorten it.
    let again = connection
        .prepare_cached("UPDATE blob SET stored = max(stored, ?2) WHERE digest = ?1")?
        .execute((digest, stored))?;
    if again == 0 {
        connection
            .prepare_cached("INSERT INTO blob (digest, length, stored) VALUES (?1, ?2, ?3)")?
            .execute((digest, row::from_number(length), stored))?;
    }
    Ok(again > 0)
}
