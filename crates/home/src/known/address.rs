//! The successes of the addresses of a pinned key: the address of the last success is tried first,
//! and one without a success for 30 days is dropped.

use std::time::Duration;

use levada_core::{Identity, UnixTime};
use levada_database::DatabaseError as StoreError;
use rusqlite::{Connection, OptionalExtension};

use super::pin::{self, Pin};
use super::{Known, row};
use crate::address::is_usable;

/// An address without a success for this time is dropped when another address succeeds.
const MAX_UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);
/// A repeated success at the same address is written only after this time, which saves a write for
/// each connection.
const WRITE_INTERVAL: Duration = Duration::from_secs(3600);
/// Maximum number of addresses of a pin, which is also that of a capability.
pub const MOST_ADDRESSES: usize = 8;

impl Known {
    /// Stores that the key was proven at `address`, and moves that to the front of every pin of the
    /// key. Does nothing if the key is not pinned.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read or written.
    pub fn note_success(
        &self,
        identity: &Identity,
        address: &str,
        now: UnixTime,
    ) -> Result<(), StoreError> {
        let is_stored = self.database.read(|connection| {
            let pins = pin::of_identity(connection, identity)?;
            let last = last_success(connection, identity, address)?;
            let is_fresh = last.is_some_and(|last| last.after(WRITE_INTERVAL) > now && last <= now);
            let is_first = |pin: &Pin| pin.addresses.first().is_some_and(|one| one == address);
            Ok(pins.is_empty() || (is_fresh && pins.iter().all(is_first)))
        })?;
        if is_stored {
            return Ok(());
        }
        self.database.write(|tx| {
            store_success(tx, identity, address, now)?;
            for pin in pin::of_identity(tx, identity)? {
                let addresses = in_order(tx, &pin, address, now)?;
                pin::set_addresses(tx, &pin.name, &addresses)?;
            }
            Ok(delete_unlisted(tx, identity)?)
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

fn store_success(
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

/// The addresses of a pin, sorted by their last success, without the unused ones and those of other
/// machines.
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
        if noted.max(succeeded).after(MAX_UNUSED) > now {
            rows.push((succeeded, address.clone()));
        }
    }
    // The sort is stable: addresses without a success keep their order.
    rows.sort_by_key(|(succeeded, _)| std::cmp::Reverse(*succeeded));
    let others = rows.into_iter().map(|(_, address)| address);
    let addresses = std::iter::once(proven.to_owned()).chain(others).take(MOST_ADDRESSES);
    Ok(addresses.collect())
}

/// Deletes the records of addresses that no pin lists.
fn delete_unlisted(connection: &Connection, identity: &Identity) -> rusqlite::Result<()> {
    connection.execute(
        "DELETE FROM address WHERE identity = ?1 AND NOT EXISTS (
             SELECT 1 FROM pin, json_each(pin.addresses) AS one
             WHERE pin.identity = ?1 AND one.value = address.address)",
        [identity.as_bytes()],
    )?;
    Ok(())
}
