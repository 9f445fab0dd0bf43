//! Garbage collection: blobs that no version refers to, and files that a crash left.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use levada_core::{Digest, Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension};

use super::audit::Details;
use super::inner::Inner;
use super::{audit, blobs, row};
use crate::store::{Action, Collected, StoreError};

/// How many blobs are examined per transaction; other calls can run in between.
const BATCH: u32 = 256;

/// The condition for deletion. The DELETE statement repeats it, because a version may have been
/// published since.
const GARBAGE: &str =
    "stored <= ?2 AND NOT EXISTS (SELECT 1 FROM version WHERE package = blob.digest)";

impl Inner {
    pub fn collect(
        &self,
        grace: Duration,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Collected, StoreError> {
        let latest = UnixTime(now.0.saturating_sub(grace.as_secs()));
        let mut collected = Collected::default();
        let mut after = Vec::new();
        loop {
            let batch = self.database.read(|connection| next_batch(connection, &after, latest))?;
            let Some((last, _)) = batch.last() else { break };
            after = last.to_vec();
            let garbage: Vec<Digest> =
                batch.iter().filter(|(_, garbage)| *garbage).map(|(digest, _)| *digest).collect();
            if !garbage.is_empty() {
                self.delete(&garbage, latest, (by, now), &mut collected)?;
            }
        }
        self.sweep()?;
        Ok(collected)
    }

    /// Removes the files that have no row.
    pub fn sweep(&self) -> Result<(), StoreError> {
        for name in self.blobs.shard_names()? {
            let Some(number) = blobs::number_of(&name) else { continue };
            let _placement = self.blobs.lock_placement_exclusive();
            for path in self.strays(number)? {
                self.blobs.remove(&path)?;
            }
        }
        Ok(())
    }

    /// The files of a shard that have the name of a blob and no row. The placement must be locked
    /// exclusively.
    pub fn strays(&self, number: u8) -> Result<Vec<PathBuf>, StoreError> {
        let names = self.blobs.names(&self.blobs.shard(number))?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let recorded = self.database.read(|connection| recorded(connection, number))?;
        let digests = names.iter().filter_map(|name| blobs::digest_of(number, name));
        let strays = digests.filter(|digest| !recorded.contains(digest));
        Ok(strays.map(|digest| self.blobs.path(&digest)).collect())
    }

    /// The files of blobs that have a row, with their lengths in bytes.
    pub fn files(&self) -> Result<Vec<(Digest, u64)>, StoreError> {
        let mut files = Vec::new();
        for number in self.blobs.shard_names()?.iter().filter_map(|name| blobs::number_of(name)) {
            let names = self.blobs.names(&self.blobs.shard(number))?;
            for digest in names.iter().filter_map(|name| blobs::digest_of(number, name)) {
                files.extend(self.blobs.read(&digest)?.map(|blob| (digest, blob.length())));
            }
        }
        Ok(files)
    }

    /// Deletes the rows first, so that every row has a file.
    fn delete(
        &self,
        garbage: &[Digest],
        latest: UnixTime,
        (by, now): (Option<Identity>, UnixTime),
        collected: &mut Collected,
    ) -> Result<(), StoreError> {
        let placement = self.blobs.lock_placement_exclusive();
        let deleted = self.database.write::<_, StoreError>(|tx| {
            let deleted = delete_rows(tx, garbage, latest)?;
            if !deleted.is_empty() {
                let text = format!("{} blobs", deleted.len());
                let details = Details { identity: by, key: None, version: None, text: &text };
                audit::add(tx, Action::Collect, "done", &details, now)?;
            }
            Ok(deleted)
        })?;
        let mut moved = Vec::new();
        for (digest, length) in deleted {
            moved.extend(self.blobs.move_away(&digest)?);
            collected.blobs += 1;
            collected.bytes += length;
        }
        // Deleting a long file takes long. The files are moved away, so the lock is not needed.
        drop(placement);
        moved.iter().try_for_each(|path| self.blobs.remove(path))
    }
}

/// The next blobs behind `after`, and whether each can be deleted.
fn next_batch(
    connection: &Connection,
    after: &[u8],
    latest: UnixTime,
) -> rusqlite::Result<Vec<(Digest, bool)>> {
    let sql = format!(
        "SELECT digest, {GARBAGE} AS garbage FROM blob WHERE digest > ?1 ORDER BY digest LIMIT ?3"
    );
    let mut query = connection.prepare_cached(&sql)?;
    let rows = query.query_map((after, row::from_time(latest), BATCH), |row| {
        Ok((row.get("digest")?, row.get("garbage")?))
    })?;
    rows.collect()
}

fn delete_rows(
    connection: &Connection,
    garbage: &[Digest],
    latest: UnixTime,
) -> rusqlite::Result<Vec<(Digest, u64)>> {
    let sql = format!("DELETE FROM blob WHERE digest = ?1 AND {GARBAGE} RETURNING length");
    let mut delete = connection.prepare_cached(&sql)?;
    let mut deleted = Vec::new();
    for digest in garbage {
        let length = delete
            .query_row((digest, row::from_time(latest)), |row| row::number(row, "length"))
            .optional()?;
        deleted.extend(length.map(|length| (*digest, length)));
    }
    Ok(deleted)
}

/// The blobs with a row in the shard `number`.
fn recorded(connection: &Connection, number: u8) -> rusqlite::Result<HashSet<Digest>> {
    let mut query =
        connection.prepare_cached("SELECT digest FROM blob WHERE digest >= ?1 AND digest <= ?2")?;
    let first = vec![number];
    let last = [&[number][..], &[0xff; 31]].concat();
    query.query_map((first, last), |row| row.get(0))?.collect()
}
