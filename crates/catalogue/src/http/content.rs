//! Immutable content, in memory or in a file.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::sync::Semaphore;

use super::body::{Body, BodyFile};
use crate::store::Blob;

/// Longer content is sent from a file with `sendfile`, which saves one copy; in bytes.
const IN_MEMORY: u64 = 16 * 1024;
/// What an open file costs in the cache, in bytes: its content is in the page cache of the kernel.
const OPEN_FILE: u64 = 4096;
/// The unit of the budget, in bytes.
const UNIT: u64 = 1024;

/// A budget of `bytes` for temporary content, whether it is cached or being sent to a slow client.
pub(super) fn budget(bytes: u64) -> Arc<Semaphore> {
    let units = usize::try_from(bytes / UNIT).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)))
}

/// Immutable content.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// In memory.
    Bytes(Bytes),
    /// A file of the store, with its length in bytes. It may have been unlinked.
    File(Arc<BodyFile>, u64),
    /// A temporary file of the server, with its length in bytes.
    Temporary(Arc<BodyFile>, u64),
}

impl Content {
    /// The content of a blob.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter than the length of the blob.
    pub fn of_blob(blob: Blob) -> std::io::Result<Self> {
        match blob {
            Blob::Bytes(bytes) => Ok(Self::Bytes(bytes)),
            Blob::File(file, length) if length > IN_MEMORY => {
                Ok(Self::File(Arc::new(file.into()), length))
            }
            Blob::File(mut file, length) => {
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
                file.read_exact(&mut bytes)?;
                Ok(Self::Bytes(bytes.into()))
            }
        }
    }

    /// Temporary content. If it is long it is written to an unnamed file and takes its length from
    /// `budget`. The file is the one that `scratch` returns, because the kernel sends the larger
    /// pages of a disk file faster, or else a memfd. `None` if the budget is exhausted, or no file
    /// can be opened or written.
    pub fn temporary(
        bytes: Bytes,
        budget: &Arc<Semaphore>,
        scratch: impl FnOnce() -> Option<File>,
    ) -> Option<Self> {
        let length = bytes.len() as u64;
        if length <= IN_MEMORY {
            return Some(Self::Bytes(bytes));
        }
        let units = u32::try_from(length.div_ceil(UNIT)).ok()?;
        let permit = Arc::clone(budget).try_acquire_many_owned(units).ok()?;
        let written = |mut file: File| file.write_all(&bytes).is_ok().then_some(file);
        let memory = || memfd_create("levada-catalogue", MemfdFlags::CLOEXEC).ok().map(File::from);
        let file = scratch().and_then(written).or_else(|| memory().and_then(written))?;
        Some(Self::Temporary(Arc::new(BodyFile::temporary(file, permit)), length))
    }

    /// The length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, length) | Self::Temporary(_, length) => *length,
        }
    }

    /// Whether the file of a blob still has its length: it may have been truncated on disk.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Bytes(_) | Self::Temporary(..) => true,
            Self::File(file, length) => {
                file.file().metadata().is_ok_and(|meta| meta.len() == *length)
            }
        }
    }

    /// What it costs in the cache, in bytes.
    pub fn cost(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(..) => OPEN_FILE,
            Self::Temporary(_, length) => *length,
        }
    }

    /// A body with the bytes from the offset `from` up to, and excluding, `to`; both within the
    /// length.
    pub fn part(&self, from: u64, to: u64) -> Body {
        match self {
            Self::Bytes(bytes) => {
                let index =
                    |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                Body::Whole(bytes.slice(index(from)..index(to).max(index(from))))
            }
            Self::File(file, _) | Self::Temporary(file, _) => {
                Body::File(Arc::clone(file), from, to)
            }
        }
    }

    /// A body with the whole content.
    pub fn body(&self) -> Body {
        self.part(0, self.length())
    }
}

/// Reads a whole blob of at most `limit` bytes.
///
/// # Errors
/// The file cannot be read, or the blob is longer.
pub(super) fn read_blob(blob: Blob, limit: u64) -> std::io::Result<Bytes> {
    let (file, length) = match blob {
        Blob::Bytes(bytes) => return Ok(bytes),
        Blob::File(file, length) => (file, length),
    };
    if length > limit {
        return Err(std::io::Error::other("the package is longer than the limit"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Compresses `bytes` with gzip (RFC 1952). `None` if that saves less than a tenth.
pub(super) fn compress(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 3), Compression::default());
    encoder.write_all(bytes).ok()?;
    let compressed = encoder.finish().ok()?;
    (compressed.len() < bytes.len() / 10 * 9).then(|| compressed.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn temporary_content_takes_budget_until_it_is_dropped() {
        let budget = budget(100 * 1024);
        let long = Bytes::from(vec![7; 60 * 1024]);
        let content = Content::temporary(long.clone(), &budget, || None).unwrap();
        assert_eq!((content.length(), content.cost()), (60 * 1024, 60 * 1024));
        assert!(Content::temporary(long.clone(), &budget, || None).is_none());
        let body = content.body();
        drop(content);
        assert!(
            Content::temporary(long.clone(), &budget, || None).is_none(),
            "a body still holds the file"
        );
        drop(body);
        assert!(Content::temporary(long, &budget, || None).is_some());
        // Short content takes none.
        let _all = Arc::clone(&budget).try_acquire_many_owned(100).unwrap();
        assert!(Content::temporary(Bytes::from(vec![7; 1000]), &budget, || None).is_some());
    }

    #[test]
    fn a_full_disk_falls_back_to_memory() {
        let budget = budget(200 * 1024);
        let long = Bytes::from(vec![7; 60 * 1024]);
        let full = File::options().write(true).open("/dev/full").unwrap();
        for scratch in [Some(full), Some(tempfile::tempfile().unwrap()), None] {
            let content = Content::temporary(long.clone(), &budget, || scratch).unwrap();
            let Content::Temporary(file, length) = content else { panic!("it is long") };
            let mut back = vec![0; long.len()];
            file.file().read_exact_at(&mut back, 0).unwrap();
            assert!(back == long && length == long.len() as u64);
        }
    }

    #[test]
    fn compresses_only_if_that_saves_space() {
        assert!(compress(&b"a line\n".repeat(1000)).is_some_and(|short| short.len() < 1000));
        assert_eq!(compress(b"abcdefgh"), None);
    }
}
