//! Room that is kept back on the disk, so that taking back and collecting garbage work when there is no other.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The file that takes the room, in the store's folder.
const FILE: &str = "reserve";
/// How much it takes, in bytes: the pages that a version taken back, or a batch of garbage, adds to the
/// write-ahead log are a fraction of it.
const LENGTH: u64 = 512 * 1024;
/// How much is written at a time, in bytes.
const STEP: usize = 16 * 1024;

/// A file that is deleted when its room is needed, and made again when there is some.
pub struct Reserve(Option<PathBuf>);

impl Reserve {
    /// The reserve of the store in `folder`.
    pub fn open(folder: &Path) -> Self {
        let reserve = Self(Some(folder.join(FILE)));
        reserve.fill();
        reserve
    }

    /// None, for disks that are not the operating system's.
    pub fn none() -> Self {
        Self(None)
    }

    /// Does `work`, and once more with the room of the reserve if there is no other.
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

    /// Takes as much of the reserve as there is room for. A store without one works until the disk is full.
    fn fill(&self) {
        if let Some(path) = &self.0
            && let Err(error) = lengthen(path)
            && error.kind() != io::ErrorKind::StorageFull
            && error.kind() != io::ErrorKind::QuotaExceeded
        {
            tracing::debug!(%error, path = %path.display(), "no room is kept back");
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
        file.write_all(&noise())?;
        length += STEP as u64;
    }
    // File systems that allocate late do so now.
    file.sync_all()
}

/// Bytes that a file system cannot make smaller: a linear congruential generator (Knuth's constants).
fn noise() -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(STEP).collect()
}
