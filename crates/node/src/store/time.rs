//! A clock that never goes back: the later of the system clock and the highest stored time. It is read in memory. Every
//! transaction of the store also stores it, so that no change is on disk without a time that is at least as late as the one at
//! which it was decided.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::UnixTime;
use rusqlite::{Connection, OptionalExtension};

use super::{Store, StoreError, row};

/// While nothing else is written, the stored time is written again once it is this old, which bounds the number of writes.
const STORE_EVERY: Duration = Duration::from_secs(10);
/// A step of the clock that is larger than this while the node runs is a jump.
const JUMP: Duration = Duration::from_secs(24 * 60 * 60);

/// The result of [`Store::now`].
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
    pub fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let stored = connection
            .query_row("SELECT time FROM clock", [], |row| row.get(0).map(row::to_time))
            .optional()?
            .unwrap_or_default();
        Ok(Self { highest: stored, stored, running: false })
    }

    /// The highest time on disk.
    pub fn stored(&self) -> UnixTime {
        self.stored
    }

    fn is_jump(&self, time: UnixTime) -> bool {
        self.running && time > self.highest.after(JUMP)
    }
}

impl Store {
    /// The effective time when the system clock shows `clock`: never less than the stored time. It is read from memory.
    /// The node calls this for every decision, and [`Self::now_at_least`] at least every few minutes.
    pub fn now(&self, clock: UnixTime) -> Now {
        let mut time = self.time();
        if time.is_jump(clock) {
            return Now { time: clock, jumped: true };
        }
        time.running = true;
        time.highest = time.highest.max(clock);
        Now { time: time.highest, jumped: false }
    }

    /// As [`Self::now`]; stores the time if the stored one is older than 10 s.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn now_at_least(&self, clock: UnixTime) -> Result<Now, StoreError> {
        let now = self.now(clock);
        let is_due = {
            let time = self.time();
            time.highest >= time.stored.after(STORE_EVERY)
        };
        if is_due {
            self.write_time()?;
        }
        Ok(now)
    }

    /// Stores `now` if it is not a jump. The caller does this before it reports an expiry, so that the object stays expired even
    /// if the clock is set back. Calls of this store that report one do this themselves.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn store_time(&self, now: UnixTime) -> Result<(), StoreError> {
        if self.advance(now) { Ok(()) } else { self.write_time() }
    }

    /// Raises the time to `now` unless that is a jump. Whether the result is stored; if not, the next transaction stores it.
    pub(super) fn advance(&self, now: UnixTime) -> bool {
        let mut time = self.time();
        if !time.is_jump(now) {
            time.highest = time.highest.max(now);
        }
        time.highest <= time.stored
    }

    /// Makes `now` the effective time, even if it is earlier than the stored one or a jump. The owner confirms the clock.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn accept_clock(&self, now: UnixTime) -> Result<(), StoreError> {
        self.database.write_then(
            |tx| Ok(insert(tx, now)?),
            |()| *self.time() = Time { highest: now, stored: now, running: true },
        )
    }

    pub(super) fn is_jump(&self, now: UnixTime) -> bool {
        self.time().is_jump(now)
    }

    /// Stores the highest time in the transaction `tx`, unless it is stored. The caller passes the result to
    /// [`Self::time_is_stored`] after the commit.
    pub(super) fn store_time_in(&self, tx: &Connection) -> rusqlite::Result<UnixTime> {
        let (highest, stored) = {
            let time = self.time();
            (time.highest, time.stored)
        };
        if highest > stored {
            insert(tx, highest)?;
        }
        Ok(highest)
    }

    /// Called while no other transaction runs, so that it does not overwrite the effect of [`Self::accept_clock`].
    pub(super) fn time_is_stored(&self, stored: UnixTime) {
        self.time().stored = stored;
    }

    /// Every transaction stores the time.
    fn write_time(&self) -> Result<(), StoreError> {
        self.write(|_| Ok(()))
    }

    /// Never locked while the disk is used, so that [`Self::now`] does not wait for it.
    fn time(&self) -> MutexGuard<'_, Time> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn insert(tx: &Connection, time: UnixTime) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO clock (only, time) VALUES (1, ?1)";
    tx.prepare_cached(sql)?.execute([row::from_time(time)])?;
    Ok(())
}
