//! A clock that never goes back: the later of the system clock and the highest stored time. It is
//! read in memory. Every transaction of the store also stores it, so that no change is on disk
//! without a time that is at least as late as the one at which it was decided.

use std::time::Duration;

use levada_core::UnixTime;
use rusqlite::{Connection, OptionalExtension};

use super::row;

/// While nothing else is written, the stored time is written again once it is this old, which
/// bounds the number of writes.
const STORE_EVERY: Duration = Duration::from_secs(10);
/// A step of the clock that is larger than this while the node runs is a jump.
const JUMP: Duration = Duration::from_secs(24 * 60 * 60);

/// The result of [`Store::now`](super::Store::now).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The effective time.
    pub time: UnixTime,
    /// Whether the clock is more than a day ahead of every earlier time. Such a time is not stored
    /// until [`Store::accept_clock`](super::Store::accept_clock).
    pub jumped: bool,
}

/// The state of the clock in memory.
pub(super) struct Time {
    /// The highest time seen that was not a jump.
    highest: UnixTime,
    /// The highest time on disk.
    stored: UnixTime,
    /// Whether the clock was read since the start. The first reading is not a jump, because the
    /// node may have been off for any time.
    running: bool,
    /// The first reading, if it was more than a day ahead of the stored time: the clock may be
    /// wrong.
    leap: Option<UnixTime>,
}

impl Time {
    pub fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let stored = connection
            .query_row("SELECT time FROM clock", [], |row| row.get(0).map(row::to_time))
            .optional()?
            .unwrap_or_default();
        Ok(Self { highest: stored, stored, running: false, leap: None })
    }

    /// The highest time that was not a jump.
    pub fn highest(&self) -> UnixTime {
        self.highest
    }

    /// The highest time on disk.
    pub fn stored(&self) -> UnixTime {
        self.stored
    }

    /// Records that `time` is on disk.
    pub fn set_stored(&mut self, time: UnixTime) {
        self.stored = time;
    }

    /// The effective time when the system clock shows `clock`, which becomes the highest one unless
    /// it is a jump.
    pub fn read(&mut self, clock: UnixTime) -> Now {
        if self.is_jump(clock) {
            return Now { time: clock, jumped: true };
        }
        let is_new = self.stored == UnixTime::default();
        if !self.running && !is_new && clock > self.highest.after(JUMP) {
            self.leap = Some(clock);
        }
        self.running = true;
        self.highest = self.highest.max(clock);
        Now { time: self.highest, jumped: false }
    }

    /// Raises the time to `now` unless that is a jump. Returns true if the result is stored.
    pub fn raise(&mut self, now: UnixTime) -> bool {
        if !self.is_jump(now) {
            self.highest = self.highest.max(now);
        }
        self.highest <= self.stored
    }

    /// The state after the owner has confirmed that it is `now`, and that was stored.
    pub fn accepted(now: UnixTime) -> Self {
        Self { highest: now, stored: now, running: true, leap: None }
    }

    /// The first reading since the start, if it was more than a day ahead of the stored time.
    pub fn leap(&self) -> Option<UnixTime> {
        self.leap
    }

    /// Returns true if the stored time is so old that it is written again.
    pub fn is_due(&self) -> bool {
        self.highest >= self.stored.after(STORE_EVERY)
    }

    pub fn is_jump(&self, time: UnixTime) -> bool {
        self.running && time > self.highest.after(JUMP)
    }
}

/// Writes `time` to the database.
pub(super) fn insert(tx: &Connection, time: UnixTime) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO clock (only, time) VALUES (1, ?1)";
    tx.prepare_cached(sql)?.execute([row::from_time(time)])?;
    Ok(())
}
