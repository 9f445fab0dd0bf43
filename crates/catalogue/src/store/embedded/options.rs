//! How a store is opened.

use std::sync::Arc;

use levada_core::{Clock, SystemClock};

use super::files::Files;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// The time of an upload.
    pub clock: Arc<dyn Clock>,
    /// How many of the last changes are kept at least, for clients that follow them.
    pub kept_changes: u64,
    /// A simulated disk, for tests of disk failures; `None` for the real one.
    pub disk: Option<Disk>,
}

impl Default for Options {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), kept_changes: 65_536, disk: None }
    }
}

/// A simulated disk.
#[derive(Clone)]
pub struct Disk {
    /// The name of its virtual file system in SQLite.
    pub vfs: &'static str,
    /// Its files.
    pub files: Arc<dyn Files>,
}
