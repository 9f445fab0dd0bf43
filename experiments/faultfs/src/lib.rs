//! For tests: storage in memory, as a virtual file system (VFS) of SQLite and as plain files, that
//! simulates loss of power, after which everything that was not synced is lost, and a full disk.
//!
//! The model is a Unix file system with the minimal guarantees of POSIX:
//! - Writes, truncations, creations and deletions are in a cache until they are synced.
//! - Syncing a file makes its content durable, not its name. Names become durable when their folder
//!   is synced. SQLite's own Unix VFS syncs the folder with the first sync of a journal or
//!   write-ahead log that it opened for creation, and after a deletion if requested; so does this
//!   one. The database is in the same folder, so its name becomes durable at the same time.
//! - The content of a folder is lost if the folder's own name is lost.
//! - Every write, truncation, sync, creation and deletion is an *operation*, and is numbered. From
//!   the operation at which power is lost, that one included, everything fails until
//!   [`FaultFs::restart`].
//! - Of unsynced changes, either nothing survives, or of each 512-byte sector (and each file's
//!   length, and each name) the state after some of its changes, chosen pseudo-randomly. Durable
//!   bytes of a sector survive a change of other bytes of it (SQLite's "powersafe overwrite", which
//!   its Unix VFS claims, too).
//!
//! Not modelled: storage that acknowledges a sync without making it, bit rot, and locks: one
//! connection at a time has a database open, as with `locking_mode=EXCLUSIVE`.

mod disk;
mod file;
mod plain;
mod vfs;

use std::sync::{Mutex, MutexGuard, PoisonError};

use disk::Disk;

pub use plain::FaultFile;

/// What survives a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Only synced changes.
    Synced,
    /// Synced changes, and a part of the others that depends on this seed.
    Part(u64),
}

/// SQLite refused to register the virtual file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRegistered;

/// A simulated disk. Its memory is never freed, because SQLite may refer to it as long as the
/// process runs.
#[derive(Clone, Copy)]
pub struct FaultFs {
    name: &'static str,
    disk: &'static Mutex<Disk>,
}

impl FaultFs {
    /// Registers an empty disk in SQLite as the virtual file system `name`, once per process and
    /// name.
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

    /// The number of operations since the disk was empty.
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

    /// Loses power if it is on, and restores it. Connections must be closed before.
    pub fn restart(&self, survival: Survival) {
        self.lock().restart(survival);
    }

    /// Empties and resets the disk. Connections must be closed before.
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
