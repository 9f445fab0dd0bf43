//! Disk space that is reserved, so that yanking and garbage collection work when the disk is full.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The file that reserves the space, in the store's folder.
const FILE: &str = "reserve";
/// The length of the reserve, in bytes. Yanking a version, or collecting a batch of garbage, adds a
/// fraction of this to the write-ahead log.
const LENGTH: u64 = 512 * 1024;
/// The length of one write, in bytes.
const CHUNK: usize = 16 * 1024;

/// A file that is deleted when its space is needed, and created again when space is available.
pub struct Reserve(Option<PathBuf>);

impl Reserve {
    /// The reserve of the store in `folder`.
    pub fn open(folder: &Path) -> Self {
        let reserve = Self(Some(folder.join(FILE)));
        reserve.fill();
        reserve
    }

    /// No reserve, for a simulated disk.
    pub fn none() -> Self {
        Self(None)
    }

    /// Calls `work`; if the disk is full, releases the reserve and calls it again.
    pub fn with<T>(&self, work: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let done = match work() {
            Err(full @ StoreError::Full { .. }) => match self.release() {
                true => work(),
                false => Err(full),
            },
            done => done,
        };
        self.fill();
        done
    }

    fn release(&self) -> bool {
        self.0.as_ref().is_some_and(|path| fs::remove_file(path).is_ok())
    }

    /// Extends the reserve up to the available space. Without a reserve the store works until the
    /// disk is full.
    fn fill(&self) {
        if let Some(path) = &self.0
            && let Err(error) = lengthen(path)
            && error.kind() != io::ErrorKind::StorageFull
            && error.kind() != io::ErrorKind::QuotaExceeded
        {
            tracing::debug!(%error, path = %path.display(), "cannot reserve disk space");
        }
    }
}

fn lengthen(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let mut length = file.metadata()?.len();
    if length >= LENGTH {
        return Ok(());
    }
    while length < LENGTH {
        file.write_all(&random_bytes())?;
        length += CHUNK as u64;
    }
    // Forces the allocation on file systems that delay it.
    file.sync_all()
}

/// Bytes that a file system cannot compress, from a linear congruential generator (Knuth's
/// constants).
fn random_bytes() -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(CHUNK).collect()
}
