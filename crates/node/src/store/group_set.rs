//! Sets of groups that other nodes have signed, and those that this one signs.

use levada_core::{Digest, Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension, Transaction};
use thiserror::Error;

use super::{Fault, NewAuditEntry, Store, StoreError, audit, row};

/// A verified set of groups of another identity.
#[derive(Clone, Copy, Debug)]
pub struct NewGroupSet<'a> {
    /// The identity that has signed it.
    pub signer: Identity,
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: u64,
    /// The time from which it gives no rights.
    pub expires: UnixTime,
    /// The hash of its text.
    pub hash: Digest,
    /// The signed text.
    pub text: &'a str,
}

/// The reason why a set of groups was not taken.
#[derive(Debug, Error)]
pub enum GroupSetRefusal {
    /// A later version was taken before.
    #[error("it is version {version}, and version {stored} was taken before: an old set")]
    Older {
        /// Its version.
        version: u64,
        /// The version that was taken.
        stored: u64,
    },
    /// Another set of the same version was taken before.
    #[error("another set of version {0} was taken before: two were signed with one version")]
    Conflict(u64),
    /// It is not what the configuration names.
    #[error("{0}")]
    Source(String),
    /// It is the first one, and has expired.
    #[error("it has expired, and the first set must be valid")]
    Expired,
    /// The database failed; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A set of groups that this node signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupExport {
    /// The name of the set.
    pub name: String,
    /// The last version that was signed.
    pub version: u64,
    /// The names of its groups.
    pub groups: Vec<String>,
    /// The time from a signature to the expiry, in seconds.
    pub lifetime: u64,
    /// The signed text.
    pub text: String,
    /// The time of the last signature.
    pub signed: UnixTime,
}

impl Store {
    /// The text of the newest set with this name by `signer` that was taken.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn group_set(&self, signer: &Identity, name: &str) -> Result<Option<String>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT text FROM group_set WHERE signer = ?1 AND name = ?2")?
                .query_row((signer.as_bytes(), name), |row| row.get("text"))
                .optional()
        })
    }

    /// Checks whether a set may be taken: its version is later than the one before, or it
    /// is the first one and valid at `now`, the time that never goes back. Returns false if it is
    /// the one that was taken last.
    ///
    /// # Errors
    /// [`GroupSetRefusal`] is the reason why it may not.
    pub fn check_group_set(
        &self,
        new: &NewGroupSet,
        now: UnixTime,
    ) -> Result<bool, GroupSetRefusal> {
        let stored = self.database.read(|connection| stored_version(connection, new))?;
        let is_newer = is_newer(stored, new, now);
        if let Err(GroupSetRefusal::Expired) = is_newer {
            // The set stays expired even if the clock is set back.
            self.store_time(now)?;
        }
        is_newer
    }

    /// Stores a set if [`Self::check_group_set`] permits it.
    ///
    /// # Errors
    /// As [`Self::check_group_set`]; nothing has changed.
    pub fn take_group_set(&self, new: &NewGroupSet, now: UnixTime) -> Result<(), GroupSetRefusal> {
        self.write(|tx| {
            if is_newer(stored_version(tx, new)?, new, now).map_err(Fault::Refused)? {
                insert(tx, new, now)?;
                let text = format!("{}: version {}", new.name, new.version);
                record(tx, Some(&new.signer), "taken", &text, now)?;
            }
            Ok(())
        })
    }

    /// Moves the sets of a rotated key to its successor, as [`Self::apply_succession`] does, for a
    /// rotation that was proved to the pins only.
    ///
    /// # Errors
    /// [`StoreError`] if the change is not on disk.
    pub fn move_group_sets(&self, old: &Identity, new: &Identity) -> Result<(), StoreError> {
        let has_sets = self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT 1 FROM group_set WHERE signer = ?1 AND name NOT IN
                     (SELECT name FROM group_set WHERE signer = ?2)",
                )?
                .exists((old.as_bytes(), new.as_bytes()))
        })?;
        if !has_sets {
            return Ok(());
        }
        self.write(|tx| Ok(move_sets(tx, old, new)?))
    }

    /// Records that a set was refused. `signer` is the identity whose set was expected.
    ///
    /// # Errors
    /// [`StoreError`] if the entry is not on disk.
    pub fn record_refused_set(
        &self,
        signer: Option<&Identity>,
        text: &str,
        now: UnixTime,
    ) -> Result<(), StoreError> {
        self.write(|tx| Ok(record(tx, signer, "refused", text, now)?))
    }

    /// The set with this name that this node signs.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn group_export(&self, name: &str) -> Result<Option<GroupExport>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT * FROM group_export WHERE name = ?1")?
                .query_row([name], |row| {
                    let groups: String = row.get("content")?;
                    Ok(GroupExport {
                        name: row.get("name")?,
                        version: row.get::<_, i64>("version")?.unsigned_abs(),
                        // Only this module writes the column.
                        groups: serde_json::from_str(&groups).unwrap_or_default(),
                        lifetime: row.get::<_, i64>("lifetime")?.unsigned_abs(),
                        text: row.get("text")?,
                        signed: row::time(row, "signed")?,
                    })
                })
                .optional()
        })
    }

    /// Stores a set that this node has signed; its version is later than the last one.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk, also if its version is not later.
    pub fn add_group_export(&self, export: &GroupExport, now: UnixTime) -> Result<(), StoreError> {
        let groups = serde_json::Value::from(export.groups.clone()).to_string();
        self.write(|tx| {
            tx.execute(
                "INSERT INTO group_export (name, version, content, lifetime, text, signed)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (name) DO UPDATE
                 SET version = excluded.version, content = excluded.content,
                     lifetime = excluded.lifetime, text = excluded.text, signed = excluded.signed",
                (
                    &export.name,
                    signed(export.version),
                    groups,
                    signed(export.lifetime),
                    &export.text,
                    row::from_time(export.signed),
                ),
            )?;
            let text = format!("{}: version {}", export.name, export.version);
            let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new("groups", "signed") };
            Ok(audit::add(tx, &entry, now)?)
        })
    }
}

/// Moves the sets of a rotated key to its successor, so that their versions go on.
pub(super) fn move_sets(
    connection: &Connection,
    old: &Identity,
    new: &Identity,
) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE OR IGNORE group_set SET signer = ?2 WHERE signer = ?1",
        (old.as_bytes(), new.as_bytes()),
    )?;
    Ok(())
}

/// The version and the hash of the set that was taken last.
fn stored_version(
    connection: &Connection,
    new: &NewGroupSet,
) -> rusqlite::Result<Option<(u64, Digest)>> {
    connection
        .prepare_cached("SELECT version, hash FROM group_set WHERE signer = ?1 AND name = ?2")?
        .query_row((new.signer.as_bytes(), new.name), |row| {
            Ok((row.get::<_, i64>("version")?.unsigned_abs(), row.get("hash")?))
        })
        .optional()
}

fn is_newer(
    stored: Option<(u64, Digest)>,
    new: &NewGroupSet,
    now: UnixTime,
) -> Result<bool, GroupSetRefusal> {
    let version = new.version;
    match stored {
        None if row::has_expired(new.expires, now) => Err(GroupSetRefusal::Expired),
        Some((stored, _)) if version < stored => Err(GroupSetRefusal::Older { version, stored }),
        Some((stored, hash)) if version == stored && hash != new.hash => {
            Err(GroupSetRefusal::Conflict(version))
        }
        Some((stored, _)) => Ok(version > stored),
        None => Ok(true),
    }
}

fn insert(tx: &Transaction, new: &NewGroupSet, now: UnixTime) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT INTO group_set (signer, name, version, hash, text, added)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (signer, name) DO UPDATE
         SET version = excluded.version, hash = excluded.hash, text = excluded.text,
             added = excluded.added",
        (
            new.signer.as_bytes(),
            new.name,
            signed(new.version),
            new.hash,
            new.text,
            row::from_time(now),
        ),
    )?;
    Ok(())
}

fn record(
    connection: &Connection,
    signer: Option<&Identity>,
    outcome: &str,
    text: &str,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let entry =
        NewAuditEntry { identity: signer.copied(), text, ..NewAuditEntry::new("groups", outcome) };
    audit::add(connection, &entry, now)
}

/// A number for SQLite, which has signed ones.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
