//! Key successions: those of other identities that were followed, and those of this home.

use levada_core::{Identity, Succession, SuccessionError, UnixTime, wire};
use levada_database::{DatabaseError as StoreError, Fault};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};
use thiserror::Error;

use super::{Known, row};

/// Maximum number of successive rotations that are followed.
pub const MAX_CHAIN: usize = 16;

/// Why a succession was not followed or added.
#[derive(Debug, Error)]
pub enum FollowError {
    /// The old key has another successor already.
    #[error("{old} already has another successor, {new}")]
    Already {
        /// The old key.
        old: Identity,
        /// Its successor.
        new: Identity,
    },
    /// The new key was itself rotated away, or is the same as the old one.
    #[error("{0} was rotated away itself and cannot succeed another key")]
    Dead(Identity),
    /// The database failed, and is unchanged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Known {
    /// Follows a verified succession: every pin of the old key is changed to the new one, and the
    /// old key cannot be pinned any more. Returns the number of changed pins. The operation is
    /// idempotent.
    ///
    /// # Errors
    /// [`FollowError`] if the old key has another successor, or the new one was rotated away.
    pub fn follow(&self, succession: &Succession) -> Result<usize, FollowError> {
        let old = succession.old();
        let new = succession.new_identity();
        self.database.write(|tx| {
            match successor(tx, &old)? {
                Some(known) if known == new => return Ok(0),
                Some(known) => {
                    return Err(Fault::Refused(FollowError::Already { old, new: known }));
                }
                None => {}
            }
            if old == new || successor(tx, &new)?.is_some() {
                return Err(Fault::Refused(FollowError::Dead(new)));
            }
            insert(tx, "followed", succession)?;
            let sql = "UPDATE OR REPLACE address SET identity = ?2 WHERE identity = ?1";
            tx.execute(sql, (old.as_bytes(), new.as_bytes()))?;
            let sql = "UPDATE pin SET identity = ?2 WHERE identity = ?1";
            Ok(tx.execute(sql, (old.as_bytes(), new.as_bytes()))?)
        })
    }

    /// The successor of `old`, if one was followed.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn successor(&self, old: &Identity) -> Result<Option<Identity>, StoreError> {
        self.database.read(|connection| successor(connection, old))
    }

    /// The keys whose rotation was followed, each with its successor.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn followed(&self) -> Result<Vec<(Identity, Identity)>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT old, new FROM followed ORDER BY old")?
                .query_map([], |row| Ok((row::identity(row, "old")?, row::identity(row, "new")?)))?
                .collect()
        })
    }

    /// Stores a rotation of this home's own key. The operation is idempotent.
    ///
    /// # Errors
    /// [`FollowError`] if the old key has another successor, or the new one was a key of this home
    /// before.
    pub fn add_succession(&self, succession: &Succession) -> Result<(), FollowError> {
        let old = succession.old();
        let new = succession.new_identity();
        self.database.write(|tx| {
            let all = own(tx)?;
            if let Some(known) = all.iter().find(|known| known.old() == old) {
                let known = known.new_identity();
                let error = FollowError::Already { old, new: known };
                return if known == new { Ok(()) } else { Err(Fault::Refused(error)) };
            }
            let before = |known: &Succession| known.old() == new || known.new_identity() == new;
            if old == new || all.iter().any(before) {
                return Err(Fault::Refused(FollowError::Dead(new)));
            }
            Ok(insert(tx, "own_succession", succession)?)
        })
    }

    /// The rotations of this home's own key, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read or do not verify.
    pub fn successions(&self) -> Result<Vec<Succession>, StoreError> {
        self.database.read(own)
    }

    /// Whether `node` has acknowledged that `new` is the key of this home.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn acknowledged(&self, node: &Identity, new: &Identity) -> Result<bool, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT 1 FROM acknowledged WHERE node = ?1 AND new = ?2")?
                .exists((node.as_bytes(), new.as_bytes()))
        })
    }

    /// The rotations of this home, from its first key to `own`, that `node` has not acknowledged,
    /// oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn unacknowledged(
        &self,
        own: Identity,
        node: &Identity,
    ) -> Result<Vec<Succession>, StoreError> {
        let all = self.successions()?;
        let mut chain = Vec::new();
        let mut current = own;
        while let Some(found) = all.iter().find(|one| one.new_identity() == current)
            && chain.len() < MAX_CHAIN
        {
            current = found.old();
            chain.push(found.clone());
        }
        chain.reverse();
        let mut pending = Vec::new();
        for succession in chain {
            if !self.acknowledged(node, &succession.new_identity())? {
                pending.push(succession);
            }
        }
        Ok(pending)
    }

    /// Stores that `node` has acknowledged that `new` is the key of this home.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be written.
    pub fn acknowledge(&self, node: &Identity, new: &Identity) -> Result<(), StoreError> {
        self.database.write(|tx| {
            tx.execute(
                "INSERT INTO acknowledged (node, new) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                (node.as_bytes(), new.as_bytes()),
            )?;
            Ok(())
        })
    }
}

pub(super) fn successor(
    connection: &Connection,
    old: &Identity,
) -> rusqlite::Result<Option<Identity>> {
    connection
        .prepare_cached("SELECT new FROM followed WHERE old = ?1")?
        .query_row([old.as_bytes()], |row| row::identity(row, "new"))
        .optional()
}

fn own(connection: &Connection) -> rusqlite::Result<Vec<Succession>> {
    connection
        .prepare_cached("SELECT * FROM own_succession ORDER BY position")?
        .query_map([], succession)?
        .collect()
}

fn insert(
    connection: &Connection,
    table: &'static str,
    succession: &Succession,
) -> rusqlite::Result<()> {
    let message = succession.to_wire();
    connection.execute(
        &format!(
            "INSERT INTO {table} (old, new, time, signature, keep) VALUES (?1, ?2, ?3, ?4, ?5)"
        ),
        (
            message.old,
            message.new,
            row::from_time(succession.time()),
            message.signature,
            message.keep.concat(),
        ),
    )?;
    Ok(())
}

/// Reads a row, and verifies its signature: the file may have been changed.
fn succession(row: &Row) -> rusqlite::Result<Succession> {
    let time: UnixTime = row::time(row, "time")?;
    let message = wire::Succession {
        old: row.get("old")?,
        new: row.get("new")?,
        time: time.0,
        signature: row.get("signature")?,
        keep: row.get::<_, Vec<u8>>("keep")?.chunks(16).map(<[u8]>::to_vec).collect(),
    };
    let index = row.as_ref().column_index("signature")?;
    Succession::from_wire(&message).map_err(|error: SuccessionError| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Blob, Box::new(error))
    })
}
