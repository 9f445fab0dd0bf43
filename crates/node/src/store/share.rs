//! Shares: content that the node offers to many peers.

use levada_capability::SessionId;
use levada_core::{Digest, Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{NewAuditEntry, Store, StoreError, audit, row, ticket};

/// A share to store.
#[derive(Clone, Copy, Debug)]
pub struct NewShare<'a> {
    /// Its name in lists; not empty.
    pub name: &'a str,
    /// Its files and folders, a JSON array of absolute paths.
    pub paths: &'a str,
    /// The BLAKE3 hash of the content.
    pub root: [u8; 32],
    /// The length of the content, in bytes; at most 2^63 - 1.
    pub length: u64,
    /// How the coordinator serves it, a JSON object.
    pub settings: &'a str,
}

/// A stored share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRecord {
    /// Its id, which is not reused.
    pub id: i64,
    /// Its name in lists.
    pub name: String,
    /// A JSON array of absolute paths.
    pub paths: String,
    /// The BLAKE3 hash of the content.
    pub root: [u8; 32],
    /// The length of the content, in bytes.
    pub length: u64,
    /// A JSON object.
    pub settings: String,
    /// When it was added.
    pub created: UnixTime,
}

impl Store {
    /// Stores a share, and returns its id.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn add_share(&self, new: &NewShare, now: UnixTime) -> Result<i64, StoreError> {
        self.write(|tx| {
            tx.execute(
                "INSERT INTO share (name, paths, root, length, settings, created)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                (
                    new.name,
                    new.paths,
                    new.root,
                    i64::try_from(new.length).unwrap_or(i64::MAX),
                    new.settings,
                    row::from_time(now),
                ),
            )?;
            let id = tx.last_insert_rowid();
            let text = format!("{id}: {}", new.name);
            let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new("share", "done") };
            audit::add(tx, &entry, now)?;
            Ok(id)
        })
    }

    /// The shares that have not been stopped, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn shares(&self) -> Result<Vec<ShareRecord>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT * FROM share WHERE stopped IS NULL ORDER BY id")?
                .query_map([], record)?
                .collect()
        })
    }

    /// The share of the same content, paths and settings that has not been stopped, if any.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn same_share(&self, new: &NewShare) -> Result<Option<ShareRecord>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT * FROM share WHERE root = ?1 AND paths = ?2 AND settings = ?3
                     AND stopped IS NULL ORDER BY id",
                )?
                .query_row((new.root, new.paths, new.settings), record)
                .optional()
        })
    }

    /// Stops a share: revokes its tickets and the sessions that they gave, which are returned.
    /// `None` if there is no such share, or it was stopped before.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn stop_share(
        &self,
        id: i64,
        by: &Identity,
        now: UnixTime,
    ) -> Result<Option<Vec<SessionId>>, StoreError> {
        self.write(|tx| {
            let changed = tx.execute(
                "UPDATE share SET stopped = ?2 WHERE id = ?1 AND stopped IS NULL",
                (id, row::from_time(now)),
            )?;
            if changed == 0 {
                return Ok(None);
            }
            let mut sessions = Vec::new();
            for hash in hashes(tx, id)? {
                sessions.extend(ticket::revoke(tx, &hash, by, now)?);
            }
            let text = format!("share {id}");
            let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new("stop", "done") };
            audit::add(tx, &entry, now)?;
            Ok(Some(sessions))
        })
    }
}

fn hashes(connection: &Connection, share: i64) -> rusqlite::Result<Vec<Digest>> {
    connection
        .prepare_cached("SELECT hash FROM ticket WHERE share = ?1")?
        .query_map([share], |row| row.get("hash"))?
        .collect()
}

fn record(row: &Row) -> rusqlite::Result<ShareRecord> {
    Ok(ShareRecord {
        id: row.get("id")?,
        name: row.get("name")?,
        paths: row.get("paths")?,
        root: row.get("root")?,
        length: u64::try_from(row.get::<_, i64>("length")?).unwrap_or_default(),
        settings: row.get("settings")?,
        created: row::time(row, "created")?,
    })
}
