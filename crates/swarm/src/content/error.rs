//! What can go wrong with content on disk.

use std::io;
use std::path::{Path, PathBuf};

use levada_core::format_size;
use thiserror::Error;

use super::manifest::ManifestError;
use super::tree::BadChunk;
use crate::GeometryError;

/// Why content could not be read or stored.
#[derive(Debug, Error)]
pub enum ContentError {
    /// The operating system refused it.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file no longer has the bytes that were shared.
    #[error("{} has changed since it was shared; share it again", .0.display())]
    Changed(PathBuf),
    /// Neither a file nor a folder.
    #[error("{} is neither a file nor a folder; only these can be shared", .0.display())]
    Special(PathBuf),
    /// The target exists.
    #[error("{} exists; name another target with -o, or remove it", .0.display())]
    Exists(PathBuf),
    /// The sidecar belongs to another content.
    #[error("{} belongs to another download; remove it, or name another target with -o", .0.display())]
    OtherDownload(PathBuf),
    /// A file in the place of a download is not one of this user's downloads.
    #[error(
        "{} was not made by a download of this user; remove it, or name another target with -o", .0.display()
    )]
    Foreign(PathBuf),
    /// No bytes have this root and length.
    #[error("the ticket names no content: bytes of this length have another root")]
    Impossible,
    /// The disk has no room for it.
    #[error(
        "{} needs {} more, and {} are free on its disk; what was received is kept", path.display(),
        format_size(*needed), format_size(*free)
    )]
    Space {
        /// The download.
        path: PathBuf,
        /// In bytes.
        needed: u64,
        /// In bytes.
        free: u64,
    },
    /// Another process writes to the target.
    #[error("{} is in use by another download", .0.display())]
    InUse(PathBuf),
    /// See [`GeometryError`].
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// See [`ManifestError`].
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// See [`BadChunk`].
    #[error(transparent)]
    BadChunk(#[from] BadChunk),
    /// A chunk that is not there was asked for.
    #[error("chunk {0} is not there")]
    Missing(u32),
}

impl ContentError {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, error }
    }
}
