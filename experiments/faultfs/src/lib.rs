//! Tests only: storage in memory, as a virtual file system (VFS) of SQLite and as plain files beside it,
//! that loses power when told to and then loses everything that was not synced, or that becomes full.
//!
//! The model is a Unix file system that keeps no more promises than POSIX makes:
//! - What is written, truncated, created or deleted is in a cache until it is synced.
//! - Syncing a file makes its content durable, not its name. Names become durable when their folder is
//!   synced. SQLite's own Unix VFS syncs the folder with the first sync of a journal or write-ahead log
//!   that it opened for creation, and after a deletion if asked to; so does this one. The database is in the
//!   same folder, so its name becomes durable on the same occasion.
//! - What is in a folder is lost if the folder's own name is.
//! - Every write, truncation, sync, creation and deletion is an *operation*, and is numbered. From the
//!   operation at which power is lost, that one included, everything fails until [`FaultFs::restart`].
//! - Of what was not synced, either nothing survives, or of each 512-byte sector (and each file's length,
//!   and each name) the state after some of the changes to it, chosen pseudo-randomly. Bytes of a sector
//!   that were durable survive a change beside them (SQLite's "powersafe overwrite", which its Unix VFS
//!   claims too).
//!
//! Not modelled: storage that acknowledges a sync and lies, bits that rot, and locks: one connection at a
//! time has a database open, as with `locking_mode=EXCLUSIVE`.

mod disk;
mod file;
mod plain;
mod vfs;

use std::sync::{Mutex, MutexGuard, PoisonError};

use disk::Disk;

pub use plain::FaultFile;

/// What is on disk after the power was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// What was synced, and nothing else.
    Synced,
    /// What was synced, and a part of the rest that depends on this seed.
    Part(u64),
}

/// SQLite refused to register the virtual file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRegistered;

/// A disk that can lose power. Its memory is never given back: SQLite may refer to it for as long as the
/// process lives.
#[derive(Clone, Copy)]
pub struct FaultFs {
    name: &'static str,
    disk: &'static Mutex<Disk>,
}

impl FaultFs {
    /// An empty disk, which SQLite knows as the virtual file system `name`. Each name once per process.
    ///
    /// # Errors
    /// [`NotRegistered`] if SQLite refused, or the name contains a zero byte.
    pub fn register(name: &'static str) -> Result<Self, NotRegistered> {
        let disk = Box::leak(Box::new(Mutex::new(Disk::default())));
        vfs::register(name, disk)?;
        Ok(Self { name, disk })
    }

    /// The name for `open_with_flags_and_vfs`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many operations there were since the disk was new.
    pub fn operations(&self) -> u64 {
        self.lock().operations()
    }

    /// Loses power at the operation with this number (the first is 1).
    pub fn lose_power_at(&self, operation: u64) {
        self.lock().lose_power_at(operation);
    }

    /// Whether power is lost.
    pub fn is_off(&self) -> bool {
        self.lock().is_off()
    }

    /// Loses power now, if it is not lost yet, and gives it back. Connections must be closed before.
    pub fn restart(&self, survival: Survival) {
        self.lock().restart(survival);
    }

    /// Makes the disk empty and new. Connections must be closed before.
    pub fn wipe(&self) {
        *self.lock() = Disk::default();
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        lock(self.disk)
    }
}

fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}
