//! Snapshots: a new node begins with a copy of another one's replica, and applies only the records
//! behind it.
//!
//! The node whose replica has enough more records than the last snapshot writes the next one to the
//! engine: first its parts, as those of a package, then its name, if no other node has been faster.
//! Nodes trust a snapshot as they trust the log: both come from the engine.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Digest, Hasher, Random, SystemRandom};
use levada_database::{Database, file};
use tokio::sync::watch;
use tokio::time::sleep;

use super::connect::unavailable;
use super::engine::{Engine, WriteError, random_id};
use super::position::Position;
use super::record::Snapshot;
use crate::store::embedded::Inner;
use crate::store::embedded::replica::{Applied, DATABASE, LogId, REPLICA, Stored, applied_in};
use crate::store::{Blob, StoreError};

/// A snapshot is due when a replica has more records than the last one by a quarter, and by what
/// the options say.
const GROWTH: u64 = 4;
/// Between two looks at the growth; and up to as long again, so that not all nodes make one at a
/// time.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often a new node tries to fetch one: the next snapshot may replace the one that it fetches.
const TRIES: usize = 3;
/// The file in the replica's folder that a snapshot is fetched to.
const FETCHED: &str = "snapshot.new";
/// How many bytes are hashed at a time.
const BLOCK: usize = 64 << 10;

/// What makes snapshots of the replica of a node.
pub struct Snapshots {
    pub local: Arc<Inner>,
    pub engine: Arc<Engine>,
    pub position: watch::Receiver<Position>,
    /// How many records more there are at least.
    pub growth: u64,
}

impl Snapshots {
    /// Makes those that are due, for as long as the node runs.
    pub async fn run(self) {
        let mut last = 0;
        loop {
            sleep(INTERVAL + random_delay()).await;
            let applied = self.position.borrow().applied;
            if !self.is_due(applied, last) {
                continue;
            }
            match self.make(applied).await {
                Ok(number) => last = number,
                Err(error) => tracing::debug!(%error, "no snapshot of the catalogue was made"),
            }
        }
    }

    /// Whether a replica with `applied` records is worth a snapshot, after one with `last`.
    fn is_due(&self, applied: u64, last: u64) -> bool {
        applied.saturating_sub(last) >= self.growth.max(last / GROWTH)
    }

    /// Makes a snapshot, unless another node has. The last record of the last snapshot.
    async fn make(&self, applied: u64) -> Result<u64, StoreError> {
        let (before, last) = self.engine.snapshot().await?;
        let number = last.as_ref().map_or(0, |last| last.number);
        if !self.is_due(applied, number) {
            return Ok(number);
        }
        let local = Arc::clone(&self.local);
        let copy = Copy(self.local.blobs.temp());
        let written = tokio::task::spawn_blocking(move || {
            let written = write_copy(&local, &copy.0)?;
            Ok::<_, StoreError>((copy, written))
        });
        let (copy, (applied, content)) = written.await.map_err(|error| unavailable(&error))??;
        let Applied { log, number, .. } = applied;
        let (digest, length, content) = content;
        let stored = Stored { digest, length, upload: random_id()?, claim: false };
        let snapshot = Snapshot { log, number, stored };
        self.store(&snapshot, Blob::File(content, length), before).await?;
        drop(copy);
        tracing::info!(records = number, bytes = length, "made a snapshot");
        if let Some(Snapshot { stored, .. }) = last {
            self.engine.drop_parts(&stored.digest, &stored.upload).await;
        }
        Ok(number)
    }

    /// Writes a snapshot and its name to the engine, if the last one still is the one that the
    /// message `before` names.
    async fn store(
        &self,
        snapshot: &Snapshot,
        content: Blob,
        before: u64,
    ) -> Result<(), StoreError> {
        let stored = &snapshot.stored;
        let named = match self.engine.add_parts(stored, content).await {
            Ok(()) => self.engine.name_snapshot(snapshot, before).await,
            Err(error) => Err(WriteError::Failed(error)),
        };
        let failed = match named {
            Ok(()) => return Ok(()),
            // It may be the last one: the garbage collection finds out.
            Err(WriteError::Uncertain) => return Err(unavailable("it has not answered")),
            Err(WriteError::Changed) => unavailable("another node has made one"),
            Err(WriteError::Retry) => unavailable("it has no leader, or it is too busy"),
            Err(WriteError::Failed(error)) => error,
        };
        self.engine.drop_parts(&stored.digest, &stored.upload).await;
        Err(failed)
    }
}

fn random_delay() -> Duration {
    let mut byte = [0];
    // Without randomness, nodes only may do the same work twice.
    let _ = SystemRandom.fill(&mut byte);
    INTERVAL * u32::from(byte[0]) / 256
}

/// A temporary file, removed when it is dropped.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        // If this fails, the next start removes it.
        let _ = fs::remove_file(&self.0);
    }
}

type Content = (Digest, u64, File);

/// Copies a replica: how far it is, and the digest, length and content of the copy.
fn write_copy(local: &Inner, path: &Path) -> Result<(Applied, Content), StoreError> {
    let applied = local.database.copy(path, applied_in)?;
    let applied = applied.ok_or_else(|| unavailable("the replica has no log"))?;
    let content = hash(path).map_err(|error| StoreError::file(path, error))?;
    Ok((applied, content))
}

fn hash(path: &Path) -> io::Result<Content> {
    let mut content = File::open(path)?;
    let mut hasher = Hasher::default();
    let mut length = 0;
    let mut block = vec![0; BLOCK];
    loop {
        match content.read(&mut block)? {
            0 => break,
            count => {
                hasher.update(&block[..count]);
                length += count as u64;
            }
        }
    }
    content.seek(SeekFrom::Start(0))?;
    Ok((hasher.finish(), length, content))
}

/// Makes the last snapshot of `log` the replica in `folder`, which has none. Without one that this
/// version can read, it leaves the folder without a replica, for the records to fill.
pub async fn begin_with_last(engine: &Engine, log: &LogId, folder: &Path) {
    let mut tried = None;
    for _ in 0..TRIES {
        let found = match engine.snapshot().await {
            Ok((number, Some(snapshot))) if tried != Some(number) => {
                tried = Some(number);
                begin_with(&snapshot, engine, log, folder).await
            }
            // There is none, or it is the one that was tried.
            Ok(_) => return,
            Err(error) => Err(error),
        };
        match found {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "the snapshot of the catalogue is not used"),
        }
    }
}

async fn begin_with(
    snapshot: &Snapshot,
    engine: &Engine,
    log: &LogId,
    folder: &Path,
) -> Result<(), StoreError> {
    if snapshot.log != *log {
        return Err(unavailable("it is one of another log"));
    }
    let path = folder.join(FETCHED);
    let failed = |error| StoreError::file(&path, error);
    // One of an earlier start that was interrupted.
    let _ = fs::remove_file(&path);
    file::create_private(&path).map_err(failed)?;
    let fetched = Copy(path.clone());
    fetch(engine, &snapshot.stored, &path).await?;
    check(snapshot, &path)?;
    file::sync(&path).map_err(failed)?;
    // Unlike a renamed file, a link never replaces a replica that another process has begun
    // meanwhile.
    fs::hard_link(&path, folder.join(DATABASE)).map_err(failed)?;
    drop(fetched);
    file::sync_folder(folder).map_err(failed)
}

async fn fetch(engine: &Engine, stored: &Stored, path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::file(path, error);
    let mut file = File::options().write(true).open(path).map_err(failed)?;
    let mut hasher = Hasher::default();
    let write = |bytes: bytes::Bytes| {
        hasher.update(&bytes);
        file.write_all(&bytes).map_err(failed)
    };
    engine.fetch_parts(stored, write).await?;
    let found = hasher.finish();
    match found == stored.digest {
        true => Ok(()),
        false => Err(StoreError::WrongDigest { expected: stored.digest, found }),
    }
}

/// Opens a snapshot, which brings it to the schema of this version: it must be what its name says.
fn check(snapshot: &Snapshot, path: &Path) -> Result<(), StoreError> {
    let database = Database::open(path, &REPLICA)?;
    let applied = database.read(applied_in)?;
    match applied.is_some_and(|it| (it.log, it.number) == (snapshot.log, snapshot.number)) {
        true => Ok(()),
        false => Err(unavailable("it is not what its name says")),
    }
}
