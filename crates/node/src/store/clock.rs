//! The clock of the store: reads it, and stores it when that is due.

use levada_core::UnixTime;

use super::time::{self, Now, Time};
use super::{Store, StoreError, retention};

impl Store {
    /// The effective time when the system clock shows `clock`: never less than the stored time. It
    /// is read from memory. The node calls this for every decision, and [`Self::now_at_least`] at
    /// least every few minutes.
    pub fn now(&self, clock: UnixTime) -> Now {
        self.time().read(clock)
    }

    /// As [`Self::now`]; stores the time if the stored one is older than 10 s.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn now_at_least(&self, clock: UnixTime) -> Result<Now, StoreError> {
        let now = self.now(clock);
        let is_due = self.time().is_due();
        if is_due {
            self.write_time()?;
        }
        Ok(now)
    }

    /// Stores `now` if it is not a jump. The caller does this before it reports an expiry, so that
    /// the object stays expired even if the clock is set back. Calls of this store that report one
    /// do this themselves.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn store_time(&self, now: UnixTime) -> Result<(), StoreError> {
        if self.advance(now) { Ok(()) } else { self.write_time() }
    }

    /// Raises the time to `now` unless that is a jump. Whether the result is stored; if not, the
    /// next transaction stores it.
    pub(super) fn advance(&self, now: UnixTime) -> bool {
        self.time().raise(now)
    }

    /// Makes `now` the effective time, even if it is earlier than the stored one or a jump. The
    /// owner confirms the clock, so what has outlived its retention may be removed.
    ///
    /// # Errors
    /// [`StoreError`] if the time could not be stored.
    pub fn accept_clock(&self, now: UnixTime) -> Result<(), StoreError> {
        self.database.write_then(
            |tx| {
                retention::lift_hold(tx)?;
                Ok(time::insert(tx, now)?)
            },
            |()| *self.time() = Time::accepted(now),
        )
    }

    pub(super) fn is_jump(&self, now: UnixTime) -> bool {
        self.time().is_jump(now)
    }

    /// Every transaction stores the time.
    fn write_time(&self) -> Result<(), StoreError> {
        self.write(|_| Ok(()))
    }
}
