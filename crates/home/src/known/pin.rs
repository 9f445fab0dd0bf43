//! Pins: each binds a nickname to one key.

use std::cmp::Reverse;
use std::collections::HashMap;

use levada_core::{Identity, UnixTime};
use levada_database::{DatabaseError as StoreError, Fault};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};
use thiserror::Error;

use super::{Known, rotation, row};

/// A nickname and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The nickname.
    pub name: String,
    /// The key that was confirmed.
    pub identity: Identity,
    /// Its last known addresses: hints, which are not authenticated.
    pub addresses: Vec<String>,
    /// When it was pinned.
    pub added: UnixTime,
}

/// Why a key was not pinned.
#[derive(Debug, Error)]
pub enum PinError {
    /// The name is pinned to another key.
    #[error("`{name}` is pinned to {known}")]
    Conflict {
        /// The nickname.
        name: String,
        /// The key that it is pinned to.
        known: Identity,
    },
    /// The key was rotated away.
    #[error("the key {old} was rotated away; its successor is {new}")]
    Dead {
        /// The old key.
        old: Identity,
        /// Its successor.
        new: Identity,
    },
    /// The database failed, and is unchanged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a pin was not renamed.
#[derive(Debug, Error)]
pub enum RenameError {
    /// No pin has the old name.
    #[error("`{0}` is not pinned here")]
    Unknown(String),
    /// Another pin has the new name.
    #[error("`{name}` is pinned to {known}")]
    Taken {
        /// The new name.
        name: String,
        /// The key that it is pinned to.
        known: Identity,
    },
    /// The database failed, and is unchanged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Known {
    /// Pins `identity` under `name`. If that pin exists already, only its addresses change.
    ///
    /// # Errors
    /// [`PinError::Conflict`] if the name is pinned to another key, [`PinError::Dead`] if the key
    /// was rotated away.
    pub fn pin(
        &self,
        name: &str,
        identity: &Identity,
        addresses: &[String],
        now: UnixTime,
    ) -> Result<(), PinError> {
        self.database.write(|tx| {
            if let Some(new) = rotation::successor(tx, identity)? {
                return Err(Fault::Refused(PinError::Dead { old: *identity, new }));
            }
            match by_name(tx, name)? {
                Some(pin) if pin.identity != *identity => {
                    let name = name.to_owned();
                    Err(Fault::Refused(PinError::Conflict { name, known: pin.identity }))
                }
                Some(_) => Ok(set_addresses(tx, name, addresses).map(drop)?),
                None => Ok(insert(tx, name, identity, addresses, now)?),
            }
        })
    }

    /// The pin with this nickname.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn by_name(&self, name: &str) -> Result<Option<Pin>, StoreError> {
        self.database.read(|connection| by_name(connection, name))
    }

    /// The oldest pin of this key.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn by_identity(&self, identity: &Identity) -> Result<Option<Pin>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT * FROM pin WHERE identity = ?1 ORDER BY added, name LIMIT 1",
                )?
                .query_row([identity.as_bytes()], pin)
                .optional()
        })
    }

    /// All pins, by nickname.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn names(&self) -> Result<Vec<Pin>, StoreError> {
        self.database.read(|connection| {
            connection.prepare("SELECT * FROM pin ORDER BY name")?.query_map([], pin)?.collect()
        })
    }

    /// The nickname of each pinned identity; the oldest if it has several.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn name_of_each(&self) -> Result<HashMap<Identity, String>, StoreError> {
        let mut pins = self.names()?;
        pins.sort_by_key(|pin| Reverse(pin.added));
        Ok(pins.into_iter().map(|pin| (pin.identity, pin.name)).collect())
    }

    /// Replaces the addresses of a pin. Returns `false` if there is no such pin.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be written.
    pub fn update_addresses(&self, name: &str, addresses: &[String]) -> Result<bool, StoreError> {
        self.database.write(|tx| Ok(set_addresses(tx, name, addresses)?))
    }

    /// Deletes a pin. Returns `false` if there is no such pin.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be written.
    pub fn forget(&self, name: &str) -> Result<bool, StoreError> {
        self.database.write(|tx| {
            let forgotten = tx.execute("DELETE FROM pin WHERE name = ?1", [name])? == 1;
            tx.execute("DELETE FROM address WHERE identity NOT IN (SELECT identity FROM pin)", [])?;
            Ok(forgotten)
        })
    }

    /// Changes the nickname of a pin.
    ///
    /// # Errors
    /// [`RenameError`] if there is no such pin, or the new name is taken.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), RenameError> {
        self.database.write(|tx| {
            if by_name(tx, from)?.is_none() {
                return Err(Fault::Refused(RenameError::Unknown(from.to_owned())));
            }
            if let Some(taken) = by_name(tx, to)?.filter(|_| from != to) {
                let name = to.to_owned();
                return Err(Fault::Refused(RenameError::Taken { name, known: taken.identity }));
            }
            tx.execute("UPDATE pin SET name = ?2 WHERE name = ?1", (from, to))?;
            Ok(())
        })
    }
}

fn by_name(connection: &Connection, name: &str) -> rusqlite::Result<Option<Pin>> {
    connection
        .prepare_cached("SELECT * FROM pin WHERE name = ?1")?
        .query_row([name], pin)
        .optional()
}

/// Every pin of this key.
pub(super) fn of_identity(
    connection: &Connection,
    identity: &Identity,
) -> rusqlite::Result<Vec<Pin>> {
    connection
        .prepare_cached("SELECT * FROM pin WHERE identity = ?1 ORDER BY added, name")?
        .query_map([identity.as_bytes()], pin)?
        .collect()
}

fn insert(
    connection: &Connection,
    name: &str,
    identity: &Identity,
    addresses: &[String],
    now: UnixTime,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO pin (name, identity, addresses, added) VALUES (?1, ?2, ?3, ?4)",
        (name, identity.as_bytes(), to_json(addresses), row::from_time(now)),
    )?;
    Ok(())
}

pub(super) fn set_addresses(
    connection: &Connection,
    name: &str,
    addresses: &[String],
) -> rusqlite::Result<bool> {
    let set = connection
        .execute("UPDATE pin SET addresses = ?2 WHERE name = ?1", (name, to_json(addresses)))?;
    Ok(set == 1)
}

fn pin(row: &Row) -> rusqlite::Result<Pin> {
    let index = row.as_ref().column_index("addresses")?;
    let addresses = serde_json::from_str(&row.get::<_, String>(index)?).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })?;
    Ok(Pin {
        name: row.get("name")?,
        identity: row::identity(row, "identity")?,
        addresses,
        added: row::time(row, "added")?,
    })
}

fn to_json(addresses: &[String]) -> String {
    serde_json::Value::from(addresses).to_string()
}
