//! Bytes that do not change, in memory or in a file.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{MemfdFlags, memfd_create};

use super::response::Body;
use crate::store::Blob;

/// What is longer is sent from a file: the kernel then copies it once less.
const IN_MEMORY: u64 = 16 * 1024;
/// An open file costs this much of a cache, in bytes: what it has is the kernel's.
const OPEN_FILE: u64 = 4096;

/// Bytes that do not change.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In a file, with its length. It may have no name any more.
    File(Arc<File>, u64),
    /// As [`Self::File`], in a file that is memory.
    Memory(Arc<File>, u64),
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
                Ok(Self::File(Arc::new(file), length))
            }
            Blob::File(mut file, length) => {
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
                file.read_exact(&mut bytes)?;
                Ok(Self::Bytes(bytes.into()))
            }
        }
    }

    /// What was made here. It goes into a file without a name if it is long, and stays if that cannot be.
    pub fn made(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        if length <= IN_MEMORY {
            return Self::Bytes(bytes);
        }
        let filled = memfd_create("levada-catalogue", MemfdFlags::CLOEXEC).map(File::from);
        match filled {
            Ok(file) if (&file).write_all(&bytes).is_ok() => Self::Memory(Arc::new(file), length),
            _ => Self::Bytes(bytes),
        }
    }

    /// How many bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, length) | Self::Memory(_, length) => *length,
        }
    }

    /// What it costs to keep, in bytes.
    pub fn cost(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(..) => OPEN_FILE,
            Self::Memory(_, length) => *length,
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
            Self::File(file, _) | Self::Memory(file, _) => Body::File(Arc::clone(file), from, to),
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
