//! Opening and closing: a new replica is filled first, an old one serves at once.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::cache::cache_of;
use super::connect::unavailable;
use super::engine::{Engine, RETRY_DELAY};
use super::follow::Follower;
use super::inner::Cluster;
use super::options::Options;
use super::position::Position;
use super::snapshot::{self, Snapshots};
use crate::store::StoreError;
use crate::store::embedded::replica::{Applied, DATABASE, LogId, REPLICA};
use crate::store::embedded::{Inner, Options as LocalOptions};

/// How long closing a store waits for what uses its database.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Cluster {
    pub fn open(folder: &Path, options: &Options) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("catalogue-log")
            .enable_all()
            .build()
            .map_err(|error| StoreError::file(folder, error))?;
        let engine = Arc::new(runtime.block_on(Engine::connect(options))?);
        let limit = options.connect_timeout;
        let is_new = !folder.join(DATABASE).exists();
        let mut log = None;
        if is_new {
            let found = runtime.block_on(log_of(&engine, limit))?;
            runtime.block_on(snapshot::begin_with_last(&engine, &found, folder));
            log = Some(found);
        }
        let clock = Arc::clone(&options.clock);
        let local = LocalOptions { clock, kept_changes: options.kept_changes, disk: None };
        let local = Arc::new(Inner::open(folder, DATABASE, &REPLICA, local)?);
        let cache = Arc::new(Mutex::new(cache_of(&local, options.cache)?));
        let applied = match local.applied()? {
            Some(applied) => applied,
            None => {
                let log = log.map_or_else(|| runtime.block_on(log_of(&engine, limit)), Ok)?;
                local.follow(&log)?;
                Applied { log, number: 0, digest: [0; 32], filled: false }
            }
        };
        let at = applied.number;
        let begun_with = if is_new { at } else { 0 };
        let rejected = local.rejected()?;
        let position = Position { applied: at, known: at, rejected, ..Position::default() };
        let (positions, position) = watch::channel(position);
        let (revisions, revision) = watch::channel(local.revision()?);
        let follower = Follower {
            local: Arc::clone(&local),
            engine: Arc::clone(&engine),
            cache: Arc::clone(&cache),
            position: positions,
            revision: revisions,
            reported: Mutex::default(),
        };
        runtime.spawn(follower.run());
        let fetches = Default::default();
        let snapshots = Snapshots {
            local: Arc::clone(&local),
            engine: Arc::clone(&engine),
            position: position.clone(),
            growth: options.snapshot_growth,
        };
        runtime.spawn(snapshots.run());
        let runtime = Some(runtime);
        let cluster = Self {
            local,
            engine,
            position,
            revision,
            cache,
            fetches,
            begun_with,
            write_timeout: options.write_timeout,
            runtime,
        };
        if is_new || !applied.filled {
            cluster.block_on(cluster.fill(limit))?;
        }
        Ok(cluster)
    }

    /// Waits until a new replica has what the log has.
    async fn fill(&self, limit: Duration) -> Result<(), StoreError> {
        let until = Instant::now() + limit;
        let last = loop {
            match self.engine.log().await {
                Ok((stream, _)) => break stream.cached_info().state.last_sequence,
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => sleep(RETRY_DELAY).await,
            }
        };
        let mut position = self.position.clone();
        loop {
            let applied = position.borrow().applied;
            if applied >= last {
                return self.local.set_filled();
            }
            let next = position.wait_for(|position| position.applied > applied);
            if !matches!(timeout(limit, next).await, Ok(Ok(_))) {
                let fault = position.borrow().lag().fault;
                return Err(unavailable(
                    &fault.unwrap_or_else(|| "the log has stopped".to_owned()),
                ));
            }
        }
    }
}

/// The engine's log, which is created if it is missing.
async fn log_of(engine: &Engine, limit: Duration) -> Result<LogId, StoreError> {
    let until = Instant::now() + limit;
    loop {
        match engine.create().await {
            Ok(log) => return Ok(log),
            Err(error @ StoreError::Misconfigured(_)) => return Err(error),
            Err(error) if Instant::now() >= until => return Err(error),
            Err(error) => tracing::debug!(%error, "waiting for the engine of the catalogue"),
        }
        sleep(RETRY_DELAY).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // What is being applied ends first, so that the database can be opened again.
        let until = Instant::now() + CLOSE_TIMEOUT;
        while Arc::strong_count(&self.local) > 1 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
