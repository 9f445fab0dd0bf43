//! The parts of an open store. The other modules of this folder add its operations.

use std::sync::Arc;
use std::time::Duration;

use levada_core::Clock;
use levada_database::{Database, Kind as DatabaseKind};

use super::blobs::Blobs;
use super::reserve::Reserve;

/// The name of the database in the store's folder.
pub const DATABASE: &str = "catalogue.db";

pub(super) const CATALOGUE: DatabaseKind = DatabaseKind {
    application_id: 0x4c76_6374, // "Lvct"
    migrations: &[include_str!("schema/catalogue-1.sql"), include_str!("schema/catalogue-2.sql")],
    exclusive: true,
    busy_timeout: Duration::ZERO,
};

/// An open store.
pub(super) struct Inner {
    pub database: Database,
    pub blobs: Blobs,
    pub clock: Arc<dyn Clock>,
    pub kept_changes: u64,
    pub reserve: Reserve,
}
