//! The parts of an open store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::cache::Cache;
use super::engine::Engine;
use super::position::{Position, reached};
use crate::store::embedded::Inner;

/// How many packages are fetched at a time; those of one digest never are.
const FETCHES: usize = 16;
/// How long a call waits until its acknowledged change is applied here. Afterwards it returns: the
/// change is published in any case.
const APPLY_TIMEOUT: Duration = Duration::from_secs(15);
/// The parts of an open store. The other modules of this folder add its operations.
pub struct Cluster {
    pub local: Arc<Inner>,
    pub engine: Arc<Engine>,
    pub position: watch::Receiver<Position>,
    pub revision: watch::Receiver<u64>,
    pub cache: Arc<Mutex<Cache>>,
    /// Locked while a package is fetched.
    pub fetches: [tokio::sync::Mutex<()>; FETCHES],
    /// The last record of the snapshot that the replica has just begun with, or 0.
    pub begun_with: u64,
    pub write_timeout: Duration,
    /// `None` while it is dropped.
    pub runtime: Option<Runtime>,
}

impl Cluster {
    /// Runs `work` on the calling thread, which may block.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.runtime {
            Some(runtime) => runtime.block_on(work),
            // Only `drop` takes it.
            None => unreachable!("the store is in use while it is dropped"),
        }
    }

    /// Waits until a record that the engine has acknowledged is visible here.
    pub async fn reached(&self, number: u64) {
        if !reached(&mut self.position.clone(), number, APPLY_TIMEOUT).await {
            tracing::warn!(record = number, "a change is in the log, and not visible here yet");
        }
    }
}
