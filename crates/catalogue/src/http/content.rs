//! Bytes that do not change, in memory or in a file.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::response::Body;
use crate::store::Blob;

/// What is longer is sent from a file: the kernel then copies it once less.
const IN_MEMORY: u64 = 16 * 1024;
/// An open file costs this much of a cache, in bytes: what it has is the kernel's.
const OPEN_FILE: u64 = 4096;
/// What room is counted in, in bytes.
const UNIT: u64 = 1024;

/// Room for what is made here, whether it is kept or on its way to somebody slow.
pub(super) fn room(bytes: u64) -> Arc<Semaphore> {
    let units = usize::try_from(bytes / UNIT).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)))
}

/// An open file; if it was made here, with the room that it takes until nobody has it any more.
#[derive(Debug)]
pub struct Held {
    file: File,
    _room: Option<OwnedSemaphorePermit>,
}

impl Held {
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl From<File> for Held {
    fn from(file: File) -> Self {
        Self { file, _room: None }
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Bytes that do not change.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In a file, with its length. It may have no name any more.
    File(Arc<Held>, u64),
    /// As [`Self::File`], of what was made here.
    Made(Arc<Held>, u64),
}

impl Content {
    /// What a store has.
    ///
    /// # Errors
    /// The disk failed, or the blob is shorter than its length.
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

    /// What was made here. If it is long it goes into a file without a name, and takes of `room`; none if there is not
    /// enough left. The file is a `scratch`, or memory if that is none, or full: of a disk's file the kernel has
    /// larger pieces, so that it is sent faster than memory. None, too, if there are no open files or no memory left.
    pub fn made(
        bytes: Bytes,
        room: &Arc<Semaphore>,
        scratch: impl FnOnce() -> Option<File>,
    ) -> Option<Self> {
        let length = bytes.len() as u64;
        if length <= IN_MEMORY {
            return Some(Self::Bytes(bytes));
        }
        let units = u32::try_from(length.div_ceil(UNIT)).ok()?;
        let place = Arc::clone(room).try_acquire_many_owned(units).ok()?;
        let written = |mut file: File| file.write_all(&bytes).is_ok().then_some(file);
        let memory = || memfd_create("levada-catalogue", MemfdFlags::CLOEXEC).ok().map(File::from);
        let file = scratch().and_then(written).or_else(|| memory().and_then(written))?;
        Some(Self::Made(Arc::new(Held { file, _room: Some(place) }), length))
    }

    /// How many bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, length) | Self::Made(_, length) => *length,
        }
    }

    /// Whether a file is still as long as it was: a disk may have lost its end.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Bytes(_) | Self::Made(..) => true,
            Self::File(held, length) => {
                held.file.metadata().is_ok_and(|meta| meta.len() == *length)
            }
        }
    }

    /// What it costs to keep, in bytes.
    pub fn cost(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(..) => OPEN_FILE,
            Self::Made(_, length) => *length,
        }
    }

    /// A body with the bytes from an offset up to, and not including, another; both within the length.
    pub fn part(&self, from: u64, to: u64) -> Body {
        match self {
            Self::Bytes(bytes) => {
                let place =
                    |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                Body::Whole(bytes.slice(place(from)..place(to).max(place(from))))
            }
            Self::File(file, _) | Self::Made(file, _) => Body::File(Arc::clone(file), from, to),
        }
    }

    /// A body with all of it.
    pub fn body(&self) -> Body {
        self.part(0, self.length())
    }
}

/// All of a blob, which has at most `limit` bytes.
///
/// # Errors
/// The disk failed, or it is longer.
pub(super) fn read_blob(blob: Blob, limit: u64) -> std::io::Result<Bytes> {
    let (file, length) = match blob {
        Blob::Bytes(bytes) => return Ok(bytes),
        Blob::File(file, length) => (file, length),
    };
    if length > limit {
        return Err(std::io::Error::other("the package is longer than it says"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// `bytes` compressed (RFC 1952), if that saves a tenth.
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
    fn what_is_made_takes_room_as_long_as_somebody_has_it() {
        let room = room(100 * 1024);
        let long = Bytes::from(vec![7; 60 * 1024]);
        let made = Content::made(long.clone(), &room, || None).unwrap();
        assert_eq!((made.length(), made.cost()), (60 * 1024, 60 * 1024));
        assert!(Content::made(long.clone(), &room, || None).is_none());
        let body = made.body();
        drop(made);
        assert!(
            Content::made(long.clone(), &room, || None).is_none(),
            "it is on its way to somebody"
        );
        drop(body);
        assert!(Content::made(long, &room, || None).is_some());
        // What is short takes none.
        let _all = Arc::clone(&room).try_acquire_many_owned(100).unwrap();
        assert!(Content::made(Bytes::from(vec![7; 1000]), &room, || None).is_some());
    }

    #[test]
    fn a_disk_that_is_full_is_done_without() {
        let room = room(200 * 1024);
        let long = Bytes::from(vec![7; 60 * 1024]);
        let full = File::options().write(true).open("/dev/full").unwrap();
        for scratch in [Some(full), Some(tempfile::tempfile().unwrap()), None] {
            let made = Content::made(long.clone(), &room, || scratch).unwrap();
            let Content::Made(held, length) = made else { panic!("it is long") };
            let mut back = vec![0; long.len()];
            held.file.read_exact_at(&mut back, 0).unwrap();
            assert!(back == long && length == long.len() as u64);
        }
    }

    #[test]
    fn only_what_becomes_shorter_is_compressed() {
        assert!(compress(&b"a line\n".repeat(1000)).is_some_and(|short| short.len() < 1000));
        assert_eq!(compress(b"abcdefgh"), None);
    }
}
