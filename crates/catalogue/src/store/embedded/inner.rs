//! The parts of an open store. The other modules of this folder add its operations.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::Clock;
use levada_database::{Database, Kind as DatabaseKind};

use super::blobs::Blobs;
use super::files;
use super::options::Options;
use super::reserve::Reserve;
use crate::store::StoreError;

/// The name of the database in the store's folder.
pub const DATABASE: &str = "catalogue.db";

pub(super) const CATALOGUE: DatabaseKind = DatabaseKind {
    application_id: 0x4c76_6374, // "Lvct"
    migrations: &[include_str!("schema/catalogue-1.sql"), include_str!("schema/catalogue-2.sql")],
    exclusive: true,
    busy_timeout: Duration::ZERO,
    shrinks: false,
};

/// An open store.
pub(in crate::store) struct Inner {
    pub database: Database,
    pub kind: &'static DatabaseKind,
    pub blobs: Blobs,
    pub clock: Arc<dyn Clock>,
    pub kept_changes: u64,
    pub reserve: Reserve,
    /// Locked while the words of a replica are indexed.
    pub indexing: Mutex<()>,
}

impl Inner {
    /// Opens the database `name` in `folder`, which is created with mode 0700 if it is missing, and
    /// its blobs. Removes files that a crash left.
    pub fn open(
        folder: &Path,
        name: &str,
        kind: &'static DatabaseKind,
        options: Options,
    ) -> Result<Self, StoreError> {
        let path = folder.join(name);
        let (database, files, reserve) = match options.disk {
            None => {
                let database = Database::open(&path, kind)?;
                (database, files::operating_system(), Reserve::open(folder))
            }
            Some(disk) => {
                let database = Database::open_with_vfs(&path, disk.vfs, kind)?;
                (database, disk.files, Reserve::none())
            }
        };
        // The lock on the database also protects the blobs: no other process writes them.
        let blobs = Blobs::open(folder, files)?;
        let Options { clock, kept_changes, .. } = options;
        let inner = Self {
            database,
            kind,
            blobs,
            clock,
            kept_changes,
            reserve,
            indexing: Mutex::default(),
        };
        inner.sweep()?;
        inner.repair_latest()?;
        Ok(inner)
    }
}
