//! A clock that never goes back: the greater of the system's clock and the highest time stored.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::UnixTime;
use levada_database::Database;
use rusqlite::{Connection, OptionalExtension};

use super::{Store, StoreError, row};

/// Calls in between find a stored time that is at most this old, and save a write.
const STORE_EVERY: Duration = Duration::from_secs(10);
/// A clock that leaps further than this while the node runs is not believed.
const JUMP: Duration = Duration::from_secs(24 * 60 * 60);

/// The answer of [`Store::now_at_least`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time that holds.
    pub time: UnixTime,
    /// The clock is more than a day ahead of every time before: worth a warning. Such a time is not
    /// stored until [`Store::accept_clock`].
    pub jumped: bool,
}

/// What is known about time, in memory.
pub(super) struct Time {
    /// The highest time seen that was no jump.
    highest: UnixTime,
    /// The highest time on disk.
    stored: UnixTime,
    /// Whether the clock was read since the start: while the node was off, any time may have passed.
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
    /// The time that holds when the system's clock shows `clock`: never less than any time stored. The
    /// node calls this for every verdict, and at least every few minutes.
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
            self.store_time(&mut time)?;
        }
        Ok(Now { time: time.highest, jumped: false })
    }

    /// Stores `now`, if it is no jump. To be called before saying that something has expired: whatever
    /// the clock does later, it stays expired. The calls of this store that say so do it themselves.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn hold_time(&self, now: UnixTime) -> Result<(), StoreError> {
        let mut time = self.time();
        if time.is_jump(now) {
            return Ok(());
        }
        time.highest = time.highest.max(now);
        if time.highest > time.stored { self.store_time(&mut time) } else { Ok(()) }
    }

    /// Makes `now` the time that holds, even if it is less than the stored one or a jump: the owner
    /// vouches for the clock.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn accept_clock(&self, now: UnixTime) -> Result<(), StoreError> {
        let mut time = self.time();
        let before = time.highest;
        time.highest = now;
        self.store_time(&mut time).inspect_err(|_| time.highest = before)?;
        time.running = true;
        Ok(())
    }

    pub(super) fn is_jump(&self, now: UnixTime) -> bool {
        self.time().is_jump(now)
    }

    fn store_time(&self, time: &mut Time) -> Result<(), StoreError> {
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
