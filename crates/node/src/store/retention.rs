//! Retention: removes sessions a time after their expiry, and old entries of the audit log.
//!
//! Triggers of the schema permit exactly these deletions, by the stored time and the stored
//! retention. A session is removed with its uses and revocations in one statement. A session that
//! is missing cannot be started, so what was removed stays ended, also if the owner sets the clock
//! back.

use std::collections::HashSet;
use std::ops::AddAssign;
use std::time::Duration;

use levada_capability::SessionId;
use levada_config::Retention;
use levada_core::UnixTime;
use rusqlite::{Connection, OptionalExtension};

use super::{NewAuditEntry, Store, StoreError, audit, row};

/// The time for which nothing is removed after a start with a clock that is more than a day ahead
/// of the stored time: it may be wrong, and what is removed is lost.
pub(super) const HOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// The numbers of removed records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Sessions.
    pub sessions: usize,
    /// Entries of the audit log.
    pub audit: usize,
}

impl AddAssign for Pruned {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.audit += other.audit;
    }
}

/// The view `removable`: the times up to which records may be removed.
struct Removable {
    sessions: i64,
    audit: i64,
}

impl Store {
    /// Sets the retention. A node calls this at its start, after the first reading of the clock and
    /// before it stores the time, and when its configuration has changed.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn set_retention(&self, retention: &Retention) -> Result<(), StoreError> {
        let held_until = self.time().leap().map_or(UnixTime(0), |leap| leap.after(HOLD));
        let sessions = seconds(retention.sessions);
        let audit = seconds(retention.audit);
        self.write(|tx| {
            tx.execute(
                "UPDATE retention
                 SET sessions = ?1, audit = ?2, held_until = max(held_until, ?3)",
                (sessions, audit, row::from_time(held_until)),
            )?;
            Ok(())
        })
    }

    /// Removes at most `limit` sessions whose expiry and retention have passed, except those in
    /// `running`, and at most as many entries of the audit log, in one transaction with an entry
    /// about it. Returns zeros if there are none.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk; nothing was removed.
    pub fn prune(&self, running: &HashSet<SessionId>, limit: u32) -> Result<Pruned, StoreError> {
        let is_due = |connection: &Connection| match removable(connection)? {
            Some(until) => any_due(connection, &until, running),
            None => Ok(false),
        };
        if !self.database.read(is_due)? {
            return Ok(Pruned::default());
        }
        self.write(|tx| {
            let Some(until) = removable(tx)? else { return Ok(Pruned::default()) };
            let sessions = remove_sessions(tx, &until, running, limit)?;
            let audit = remove_entries(tx, &until, limit)?;
            let pruned = Pruned { sessions, audit };
            if pruned != Pruned::default() {
                record(tx, &pruned, &until, self.time().highest())?;
            }
            Ok(pruned)
        })
    }

    /// Returns at most `pages` free pages of the file to the file system. Returns true if more can
    /// be returned by a further call.
    ///
    /// # Errors
    /// [`StoreError`] if the file could not be written.
    pub fn release_pages(&self, pages: u32) -> Result<bool, StoreError> {
        self.database.release_pages(pages)
    }
}

/// Lifts the hold after a start with a wrong clock: the owner has confirmed the time.
pub(super) fn lift_hold(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("UPDATE retention SET held_until = 0", []).map(drop)
}

fn seconds(retention: Option<Duration>) -> i64 {
    retention.map_or(i64::MAX, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

fn removable(connection: &Connection) -> rusqlite::Result<Option<Removable>> {
    connection
        .prepare_cached("SELECT sessions, audit FROM removable")?
        .query_row([], |row| {
            Ok(Removable { sessions: row.get("sessions")?, audit: row.get("audit")? })
        })
        .optional()
}

fn any_due(
    connection: &Connection,
    until: &Removable,
    running: &HashSet<SessionId>,
) -> rusqlite::Result<bool> {
    if !due_sessions(connection, until, running, 1)?.is_empty() {
        return Ok(true);
    }
    connection.prepare_cached("SELECT 1 FROM audit WHERE time <= ?1 LIMIT 1")?.exists([until.audit])
}

/// The sessions that expired first, except those that run.
fn due_sessions(
    connection: &Connection,
    until: &Removable,
    running: &HashSet<SessionId>,
    limit: u32,
) -> rusqlite::Result<Vec<SessionId>> {
    let most = running.len().saturating_add(limit as usize);
    let mut due = connection
        .prepare_cached("SELECT id FROM session WHERE expires <= ?1 ORDER BY expires LIMIT ?2")?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let found = due.query_map((until.sessions, most), |row| row::session_id(row, "id"))?;
    let mut found = found.collect::<rusqlite::Result<Vec<_>>>()?;
    found.retain(|session| !running.contains(session));
    found.truncate(limit as usize);
    Ok(found)
}

fn remove_sessions(
    connection: &Connection,
    until: &Removable,
    running: &HashSet<SessionId>,
    limit: u32,
) -> rusqlite::Result<usize> {
    let due = due_sessions(connection, until, running, limit)?;
    let mut remove = connection.prepare_cached("DELETE FROM session WHERE id = ?1")?;
    for session in &due {
        remove.execute([session.as_bytes()])?;
    }
    Ok(due.len())
}

fn remove_entries(
    connection: &Connection,
    until: &Removable,
    limit: u32,
) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "DELETE FROM audit
             WHERE id IN (SELECT id FROM audit WHERE time <= ?1 ORDER BY time LIMIT ?2)",
        )?
        .execute((until.audit, limit))
}

fn record(
    connection: &Connection,
    pruned: &Pruned,
    until: &Removable,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let mut parts = Vec::new();
    if pruned.sessions > 0 {
        let until = audit::utc(row::to_time(until.sessions));
        parts.push(format!("sessions that expired until {until}: {}", pruned.sessions));
    }
    if pruned.audit > 0 {
        let until = audit::utc(row::to_time(until.audit));
        parts.push(format!("entries of this log until {until}: {}", pruned.audit));
    }
    let text = parts.join(", ");
    let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new("prune", "done") };
    audit::add(connection, &entry, now)
}
