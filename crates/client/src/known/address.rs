//! Which addresses of a pinned key have led to it: the last that did is tried first, and one that does not for a while is
//! dropped.

use std::time::Duration;

use levada_core::{Identity, UnixTime};
use levada_database::DatabaseError as StoreError;
use rusqlite::{Connection, OptionalExtension};

use super::pin::{self, Pin};
use super::{Known, row};
use crate::address::is_usable;

/// An address that has not led to its key for so long, though another has, is dropped.
const DEAD: Duration = Duration::from_secs(30 * 24 * 3600);
/// A success is written down again after so long: not each connection is worth a write.
const FRESH: Duration = Duration::from_secs(3600);
/// Addresses that are kept of a node; as many as a capability can name.
pub const MOST_ADDRESSES: usize = 8;

impl Known {
    /// Notes that the key was proven at `address`: it comes first in every pin of the key from now on. Nothing happens if
    /// the key is not pinned.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read or is not on disk.
    pub fn note_success(
        &self,
        identity: &Identity,
        address: &str,
        now: UnixTime,
    ) -> Result<(), StoreError> {
        let is_noted = self.database.read(|connection| {
            let pins = pin::of_identity(connection, identity)?;
            let last = last_success(connection, identity, address)?;
            let is_fresh = last.is_some_and(|last| last.after(FRESH) > now && last <= now);
            let is_first = |pin: &Pin| pin.addresses.first().is_some_and(|one| one == address);
            Ok(pins.is_empty() || (is_fresh && pins.iter().all(is_first)))
        })?;
        if is_noted {
            return Ok(());
        }
        self.database.write(|tx| {
            succeed(tx, identity, address, now)?;
            for pin in pin::of_identity(tx, identity)? {
                let addresses = in_order(tx, &pin, address, now)?;
                pin::set_addresses(tx, &pin.name, &addresses)?;
            }
            Ok(forget_unlisted(tx, identity)?)
        })
    }
}

fn last_success(
    connection: &Connection,
    identity: &Identity,
    address: &str,
) -> rusqlite::Result<Option<UnixTime>> {
    connection
        .prepare_cached("SELECT succeeded FROM address WHERE identity = ?1 AND address = ?2")?
        .query_row((identity.as_bytes(), address), |found| row::time(found, "succeeded"))
        .optional()
}

fn succeed(
    connection: &Connection,
    identity: &Identity,
    address: &str,
    now: UnixTime,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO address (identity, address, noted, succeeded) VALUES (?1, ?2, ?3, ?3)
         ON CONFLICT DO UPDATE SET succeeded = ?3",
        (identity.as_bytes(), address, row::from_time(now)),
    )?;
    Ok(())
}

/// The addresses of a pin, that of the last success first, without the dead ones and those of other machines.
fn in_order(
    connection: &Connection,
    pin: &Pin,
    proven: &str,
    now: UnixTime,
) -> rusqlite::Result<Vec<String>> {
    let mut rows = Vec::new();
    for address in pin.addresses.iter().filter(|one| *one != proven && is_usable(one)) {
        connection.execute(
            "INSERT INTO address (identity, address, noted, succeeded) VALUES (?1, ?2, ?3, 0)
             ON CONFLICT DO NOTHING",
            (pin.identity.as_bytes(), address, row::from_time(now)),
        )?;
        let (noted, succeeded) = connection
            .prepare_cached(
                "SELECT noted, succeeded FROM address WHERE identity = ?1 AND address = ?2",
            )?
            .query_row((pin.identity.as_bytes(), address), |found| {
                Ok((row::time(found, "noted")?, row::time(found, "succeeded")?))
            })?;
        if noted.max(succeeded).after(DEAD) > now {
            rows.push((succeeded, address.clone()));
        }
    }
    // Stable: those that never succeeded stay in the order in which they were learned.
    rows.sort_by_key(|(succeeded, _)| std::cmp::Reverse(*succeeded));
    let others = rows.into_iter().map(|(_, address)| address);
    let addresses = std::iter::once(proven.to_owned()).chain(others).take(MOST_ADDRESSES);
    Ok(addresses.collect())
}

/// What a pin does not list is noted anew if it is learned again.
fn forget_unlisted(connection: &Connection, identity: &Identity) -> rusqlite::Result<()> {
    connection.execute(
        "DELETE FROM address WHERE identity = ?1 AND NOT EXISTS (
             SELECT 1 FROM pin, json_each(pin.addresses) AS one
             WHERE pin.identity = ?1 AND one.value = address.address)",
        [identity.as_bytes()],
    )?;
    Ok(())
}
