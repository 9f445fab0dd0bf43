//! A clock that never goes back: the later of the system clock and the highest stored time.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::UnixTime;
use levada_database::Database;
use rusqlite::{Connection, OptionalExtension};

use super::{Store, StoreError, row};

/// The stored time is written again once it is this old, which bounds the number of writes.
const STORE_EVERY: Duration = Duration::from_secs(10);
/// A step of the clock that is larger than this while the node runs is a jump.
const JUMP: Duration = Duration::from_secs(24 * 60 * 60);

/// The result of [`Store::now_at_least`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The effective time.
    pub time: UnixTime,
    /// Whether the clock is more than a day ahead of every earlier time. Such a time is not stored until
    /// [`Store::accept_clock`].
    pub jumped: bool,
}

/// The state of the clock in memory.
pub(super) struct Time {
    /// The highest time seen that was not a jump.
    highest: UnixTime,
    /// The highest time on disk.
    stored: UnixTime,
    /// Whether the clock was read since the start. The first reading is not a jump, because the node may have been off for any
    /// time.
    running: bool,
}

impl Time {
    pub fn load(database: &Database) -> Result<Self, StoreError> {
        let stored = database.read(stored)?.unwrap_or_default();
        Ok(Self { highest: stored, stored, running: false })
    }

    fn is_jump(&self, time: UnixTime) -> bool {
        self.running && time > self.highest.after(JUMP)
    }
}

impl Store {
    /// The effective time when the system clock shows `clock`: never less than the stored time. The node calls this for every
    /// decision, and at least every few minutes.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn now_at_least(&self, clock: UnixTime) -> Result<Now, StoreError> {
        let mut time = self.time();
        if time.is_jump(clock) {
            return Ok(Now { time: clock, jumped: true });
        }
        time.running = true;
        time.highest = time.highest.max(clock);
        if time.highest >= time.stored.after(STORE_EVERY) {
            self.write_time(&mut time)?;
        }
        Ok(Now { time: time.highest, jumped: false })
    }

    /// Stores `now` if it is not a jump. The caller does this before it reports an expiry, so that the object stays expired even
    /// if the clock is set back. Calls of this store that report one do this themselves.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn store_time(&self, now: UnixTime) -> Result<(), StoreError> {
        let mut time = self.time();
        if time.is_jump(now) {
            return Ok(());
        }
        time.highest = time.highest.max(now);
        if time.highest > time.stored { self.write_time(&mut time) } else { Ok(()) }
    }

    /// Makes `now` the effective time, even if it is earlier than the stored one or a jump. The owner confirms the clock.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn accept_clock(&self, now: UnixTime) -> Result<(), StoreError> {
        let mut time = self.time();
        let before = time.highest;
        time.highest = now;
        self.write_time(&mut time).inspect_err(|_| time.highest = before)?;
        time.running = true;
        Ok(())
    }

    pub(super) fn is_jump(&self, now: UnixTime) -> bool {
        self.time().is_jump(now)
    }

    fn write_time(&self, time: &mut Time) -> Result<(), StoreError> {
        let seconds = row::from_time(time.highest);
        self.database.write::<_, StoreError>(|tx| {
            tx.execute("INSERT OR REPLACE INTO clock (only, time) VALUES (1, ?1)", [seconds])?;
            Ok(())
        })?;
        time.stored = time.highest;
        Ok(())
    }

    fn time(&self) -> MutexGuard<'_, Time> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stored(connection: &Connection) -> rusqlite::Result<Option<UnixTime>> {
    let seconds =
        connection.query_row("SELECT time FROM clock", [], |row| row.get(0)).optional()?;
    Ok(seconds.map(row::to_time))
}
