//! A database that repeats what the log of a catalogue on several nodes says. Only records change
//! it, in their order, so that all replicas are equal. Its folder of blobs is a cache: a blob with
//! a row may have no file.

use levada_core::{Digest, Identity, UnixTime};
use levada_database::{Fault, Kind as DatabaseKind};
use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::audit::{self, Details};
use super::inner::{CATALOGUE, Inner};
use super::publish::{self, New, Yank};
use super::{feed, row, upload};
use crate::model::{Draft, Key, Version};
use crate::store::{Action, StoreError};

/// The name of the database in the replica's folder.
pub const DATABASE: &str = "replica.db";

pub(in crate::store) const REPLICA: DatabaseKind = DatabaseKind {
    application_id: 0x4c76_7270, // "Lvrp"
    migrations: &[
        include_str!("schema/catalogue-1.sql"),
        include_str!("schema/catalogue-2.sql"),
        include_str!("schema/replica-1.sql"),
        include_str!("schema/replica-2.sql"),
    ],
    ..CATALOGUE
};

/// Names the log of a catalogue; random.
pub type LogId = [u8; 16];
/// Names the parts of one upload; random.
pub type UploadId = [u8; 16];

/// Who did something, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Author {
    /// `None` for the owner.
    pub identity: Option<Identity>,
    /// By the clock of the node.
    pub time: UnixTime,
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A version was published.
    Published(Draft, Author),
    /// A version was yanked, or restored.
    Yanked {
        /// The object.
        key: Key,
        /// The version.
        version: Version,
        /// False if it was restored.
        yanked: bool,
        /// By whom.
        author: Author,
    },
    /// A version was refused because a different one exists.
    Conflict(Key, Version, Author),
    /// The parts of a blob are stored.
    Stored(Stored),
    /// A blob is deleted.
    Deleted(Digest),
    /// So many blobs were deleted.
    Swept(u64, Author),
}

/// A blob of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub length: u64,
    /// Where its parts are.
    pub upload: UploadId,
    /// Written with a version that refers to it; no new upload.
    pub claim: bool,
}

/// A record, and where it is in the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its number: higher than that of all before.
    pub number: u64,
    /// When the engine received it.
    pub time: UnixTime,
    /// The SHA-256 of its bytes.
    pub digest: Digest,
    /// What it says; `None` if it cannot be read.
    pub record: Option<Record>,
}

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The log that it repeats.
    pub log: LogId,
    /// The last record that was applied; 0 before the first.
    pub number: u64,
    /// The SHA-256 of that record.
    pub digest: Digest,
    /// Whether the replica once had all of the log.
    pub filled: bool,
}

/// Makes the copy of a replica an embedded store, for a backup.
pub(super) fn make_catalogue(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("DROP TABLE stored_blob; DROP TABLE replica;")?;
    connection.pragma_update(None, "application_id", CATALOGUE.application_id)?;
    connection.pragma_update(None, "user_version", CATALOGUE.migrations.len() as i64)
}

/// How far the replica in a database is; `None` for a new one.
pub(in crate::store) fn applied_in(connection: &Connection) -> rusqlite::Result<Option<Applied>> {
    let mut query = connection.prepare_cached("SELECT log, applied, last, filled FROM replica")?;
    let found = query.query_row([], |row| {
        Ok(Applied {
            log: row.get("log")?,
            number: row::number(row, "applied")?,
            digest: row.get("last")?,
            filled: row.get("filled")?,
        })
    });
    found.optional()
}

impl Inner {
    /// Whether the database repeats a log.
    pub fn is_replica(&self) -> bool {
        self.kind.application_id == REPLICA.application_id
    }

    /// How far the replica is; `None` for a new database.
    pub fn applied(&self) -> Result<Option<Applied>, StoreError> {
        Ok(self.database.read(applied_in)?)
    }

    /// Makes a new database the replica of `log`.
    pub fn follow(&self, log: &LogId) -> Result<(), StoreError> {
        self.database.write(|tx| {
            let insert = "INSERT INTO replica (only, log, applied, last, filled)
                          VALUES (1, ?1, 0, zeroblob(32), 0)";
            tx.execute(insert, [log])?;
            Ok(())
        })
    }

    /// Notes that the replica has all of the log.
    pub fn set_filled(&self) -> Result<(), StoreError> {
        self.database.write(|tx| Ok(tx.execute("UPDATE replica SET filled = 1", []).map(drop)?))
    }

    /// The last record about a blob, and what it says.
    pub fn stored(&self, digest: &Digest) -> Result<Option<(u64, Stored)>, StoreError> {
        Ok(self.database.read(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT record, length, upload FROM stored_blob JOIN blob USING (digest)
                 WHERE digest = ?1",
            )?;
            let found = query.query_row([digest], |row| {
                let length = row::number(row, "length")?;
                let upload = row.get("upload")?;
                let stored = Stored { digest: *digest, length, upload, claim: false };
                Ok((row::number(row, "record")?, stored))
            });
            found.optional()
        })?)
    }

    /// The blobs that no version refers to, and that were uploaded at `latest` at the latest; the
    /// last record about each.
    pub fn garbage(&self, latest: UnixTime) -> Result<Vec<(Digest, u64)>, StoreError> {
        Ok(self.database.read(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT blob.digest AS digest, record FROM blob JOIN stored_blob USING (digest)
                 WHERE stored <= ?1
                   AND NOT EXISTS (SELECT 1 FROM version WHERE package = blob.digest)",
            )?;
            let rows = query.query_map([row::from_time(latest)], |row| {
                Ok((row.get("digest")?, row::number(row, "record")?))
            })?;
            rows.collect()
        })?)
    }

    /// The number of records that could not be applied.
    pub fn rejected(&self) -> Result<u64, StoreError> {
        Ok(self.database.read(|connection| {
            let sql =
                "SELECT count(*) AS count FROM audit WHERE outcome = 'conflict' AND text <> ''";
            connection.prepare_cached(sql)?.query_row([], |row| row::number(row, "count"))
        })?)
    }

    /// Repeats what the next records of the log say, in one transaction. Returns the blobs that
    /// they have deleted, and how many records could not be applied. Words are indexed later.
    pub fn apply(&self, entries: &[Entry]) -> Result<(Vec<Digest>, u64), StoreError> {
        let Some(last) = entries.last() else { return Ok((Vec::new(), 0)) };
        let has_deletions = entries.iter().any(|it| matches!(it.record, Some(Record::Deleted(_))));
        // Between the deletion of a row and that of its file, no file is placed.
        let _placement = has_deletions.then(|| self.blobs.lock_placement_exclusive());
        let (replaced, deleted, rejected) = self.database.write::<_, StoreError>(|tx| {
            let mut batch = Batch::new(tx, self.kept_changes);
            for entry in entries {
                batch.apply(entry)?;
            }
            tx.prepare_cached("UPDATE replica SET applied = ?1, last = ?2")?
                .execute((row::from_number(last.number), last.digest))?;
            Ok((batch.replaced, batch.deleted, batch.rejected))
        })?;
        self.blobs.count_replaced(replaced);
        for digest in &deleted {
            if let Err(error) = self.blobs.remove(&self.blobs.path(digest)) {
                tracing::warn!(%error, "a deleted package is left until the next start");
            }
        }
        Ok((deleted, rejected))
    }
}

/// The records of one transaction.
struct Batch<'a> {
    connection: &'a Connection,
    kept_changes: u64,
    replaced: u64,
    rejected: u64,
    deleted: Vec<Digest>,
}

/// Returns true if a record contradicts what earlier ones have made: a version that exists, or a
/// package that does not.
fn is_conflict(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

type Done = Result<(), Fault<StoreError>>;

impl<'a> Batch<'a> {
    fn new(connection: &'a Connection, kept_changes: u64) -> Self {
        Self { connection, kept_changes, replaced: 0, rejected: 0, deleted: Vec::new() }
    }

    /// Applies a record, or notes in the audit log that it conflicts with earlier ones. All
    /// replicas are equal, so each of them comes to the same result.
    fn apply(&mut self, entry: &Entry) -> Done {
        let Some(record) = &entry.record else {
            return self.reject(entry, "it cannot be read");
        };
        self.execute("SAVEPOINT record")?;
        match self.apply_record(entry, record) {
            Err(Fault::Sql(error)) if is_conflict(&error) => {
                self.execute("ROLLBACK TO record")?;
                self.reject(entry, &error.to_string())?;
            }
            other => other?,
        }
        self.execute("RELEASE record")
    }

    fn execute(&self, sql: &str) -> Done {
        Ok(self.connection.prepare_cached(sql)?.execute([]).map(drop)?)
    }

    fn reject(&mut self, entry: &Entry, why: &str) -> Done {
        self.rejected += 1;
        let (identity, key, version) = match &entry.record {
            Some(Record::Published(Draft { key, version, .. }, author))
            | Some(Record::Yanked { key, version, author, .. }) => {
                (author.identity, Some(key), Some(version))
            }
            _ => (None, None, None),
        };
        let text = format!("record {} of the log is not applied: {why}", entry.number);
        let details = Details { identity, key, version, text: &text };
        Ok(audit::add(self.connection, Action::Publish, "conflict", &details, entry.time)?)
    }

    fn apply_record(&mut self, entry: &Entry, record: &Record) -> Done {
        match record {
            Record::Published(draft, author) => self.publish(entry.number, draft, author),
            Record::Yanked { key, version, yanked, author } => {
                let revision = entry.number;
                self.yank(&Yank { key, version, yanked: *yanked, revision }, author)
            }
            Record::Conflict(key, version, Author { identity, time }) => {
                Ok(publish::add_conflict(self.connection, key, version, *identity, *time)?)
            }
            Record::Stored(stored) => self.store(entry, stored),
            Record::Deleted(digest) => self.delete(entry.number, digest),
            Record::Swept(count, Author { identity, time }) => {
                let text = format!("{count} blobs");
                let details =
                    Details { identity: *identity, key: None, version: None, text: &text };
                Ok(audit::add(self.connection, Action::Collect, "done", &details, *time)?)
            }
        }
    }

    fn publish(&self, revision: u64, draft: &Draft, author: &Author) -> Done {
        // The engine refuses a second record for a version.
        feed::set_revision(self.connection, revision)?;
        let Author { identity: by, time: now } = *author;
        let new = New { draft, digest: draft.digest(), revision, by, now };
        publish::put(self.connection, &new, self.kept_changes)?;
        Ok(())
    }

    fn yank(&self, change: &Yank, author: &Author) -> Done {
        let Some(found) = publish::state(self.connection, change.key, change.version)? else {
            return Ok(());
        };
        if found.yanked == change.yanked {
            return Ok(());
        }
        feed::set_revision(self.connection, change.revision)?;
        let Author { identity, time } = *author;
        Ok(publish::set_yanked(self.connection, &found, change, identity, time, self.kept_changes)?)
    }

    fn store(&mut self, entry: &Entry, stored: &Stored) -> Done {
        let Stored { digest, length, upload: id, claim } = stored;
        let time = row::from_time(entry.time);
        if upload::record_blob(self.connection, digest, *length, time)? && !claim {
            self.replaced += 1;
        }
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO stored_blob (digest, record, upload) VALUES (?1, ?2, ?3)",
            )?
            .execute((digest, row::from_number(entry.number), id))?;
        Ok(())
    }

    /// A version may have been published in one batch with the record that the deletion expected:
    /// the blob stays then.
    fn delete(&mut self, number: u64, digest: &Digest) -> Done {
        let deleted = self
            .connection
            .prepare_cached(
                "DELETE FROM blob WHERE digest = ?1
                 AND NOT EXISTS (SELECT 1 FROM version WHERE package = ?1)",
            )?
            .execute([digest])?;
        if deleted > 0 {
            self.deleted.push(*digest);
            return Ok(());
        }
        self.connection
            .prepare_cached("UPDATE stored_blob SET record = ?2 WHERE digest = ?1")?
            .execute((digest, row::from_number(number)))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_have_the_whole_schema_of_catalogues() {
        let mut missing = CATALOGUE.migrations.iter();
        assert!(missing.all(|script| REPLICA.migrations.contains(script)));
    }
}
