//! The allow-list, blocks and rotated keys in memory, because they are looked up for every
//! connection and operation. Each entry is a copy of the tables, read in the transaction that
//! changes them, and replaced before another transaction begins.

use std::collections::HashMap;

use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, Row};
use thiserror::Error;

use super::row;

/// The reason for which an identity is denied every operation.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DenialReason {
    /// The owner of the node has blocked it.
    #[error("{0} is blocked")]
    Blocked(Identity),
    /// Its key was rotated: another key has succeeded it.
    #[error("the key {0} was rotated away")]
    Rotated(Identity),
}

/// The identities with a row in one of the tables.
#[derive(Default)]
pub(super) struct Rights(HashMap<Identity, Entry>);

/// The rows of one identity.
#[derive(Default)]
pub(super) struct Entry {
    is_blocked: bool,
    is_rotated: bool,
    allowed: Vec<Allowed>,
}

/// A right to request sessions.
struct Allowed {
    /// The service; `None` for every service.
    service: Option<String>,
    expires: UnixTime,
    /// The starts that it still permits; `None` for any number.
    uses: Option<u32>,
}

impl Allowed {
    fn read(row: &Row) -> rusqlite::Result<Self> {
        Ok(Self {
            service: row.get("service")?,
            expires: row::time(row, "expires")?,
            uses: row.get("uses")?,
        })
    }

    fn is_valid(&self, now: UnixTime) -> bool {
        is_valid(self.expires, self.uses, now)
    }

    /// Returns true if it is for `service`. With `by_name`, a right to every service is not.
    fn covers(&self, service: &str, by_name: bool) -> bool {
        self.service.as_ref().map_or(!by_name, |allowed| allowed == service)
    }
}

/// Returns true if a right with this end and these uses permits something at `now`.
pub(super) fn is_valid(expires: UnixTime, uses: Option<u32>, now: UnixTime) -> bool {
    !row::has_expired(expires, now) && uses != Some(0)
}

impl Rights {
    pub fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let all: Vec<Identity> = connection
            .prepare(
                "SELECT identity FROM allowed UNION SELECT identity FROM blocked
                 UNION SELECT old FROM succession",
            )?
            .query_map([], |row| row::identity(row, "identity"))?
            .collect::<Result<_, _>>()?;
        let mut rights = Self::default();
        for identity in all {
            rights.set(identity, Entry::load(connection, &identity)?);
        }
        Ok(rights)
    }

    /// The time until which `identity` may request `service`; `None` if it may not. With `by_name`,
    /// a right to every service does not count.
    pub fn permitted_until(
        &self,
        identity: &Identity,
        service: &str,
        by_name: bool,
        now: UnixTime,
    ) -> Option<UnixTime> {
        let entry = self.0.get(identity)?;
        if entry.is_blocked || entry.is_rotated {
            return None;
        }
        let valid = entry.allowed.iter().filter(|allowed| allowed.is_valid(now));
        valid.filter(|allowed| allowed.covers(service, by_name)).map(|one| one.expires).max()
    }

    /// Returns true if a right of `identity` to `service` has expired.
    pub fn has_expired(&self, identity: &Identity, service: &str, now: UnixTime) -> bool {
        let covers = |right: &Allowed| right.covers(service, false);
        let mut rights = self.0.get(identity).into_iter().flat_map(|entry| &entry.allowed);
        rights.any(|right| covers(right) && row::has_expired(right.expires, now))
    }

    /// Returns true if `identity` may request any service, unless it is denied.
    pub fn allows_any(&self, identity: &Identity, now: UnixTime) -> bool {
        let entry = self.0.get(identity);
        entry.is_some_and(|entry| entry.allowed.iter().any(|allowed| allowed.is_valid(now)))
    }

    pub fn is_blocked(&self, identity: &Identity) -> bool {
        self.0.get(identity).is_some_and(|entry| entry.is_blocked)
    }

    pub fn is_rotated(&self, identity: &Identity) -> bool {
        self.0.get(identity).is_some_and(|entry| entry.is_rotated)
    }

    /// The reason for the first of `identities` that is blocked or was rotated.
    pub fn first_denied<'a>(
        &self,
        identities: impl IntoIterator<Item = &'a Identity>,
    ) -> Option<DenialReason> {
        identities.into_iter().find_map(|identity| match self.0.get(identity)? {
            Entry { is_blocked: true, .. } => Some(DenialReason::Blocked(*identity)),
            Entry { is_rotated: true, .. } => Some(DenialReason::Rotated(*identity)),
            _ => None,
        })
    }

    /// Replaces the rows of `identity`.
    pub fn set(&mut self, identity: Identity, entry: Entry) {
        if entry.is_empty() {
            self.0.remove(&identity);
        } else {
            self.0.insert(identity, entry);
        }
    }
}

impl Entry {
    /// Reads the rows of `identity`.
    pub fn load(connection: &Connection, identity: &Identity) -> rusqlite::Result<Self> {
        let identity = [identity.as_bytes()];
        let exists = |sql: &str| connection.prepare_cached(sql)?.exists(identity);
        Ok(Self {
            is_blocked: exists("SELECT 1 FROM blocked WHERE identity = ?1")?,
            is_rotated: exists("SELECT 1 FROM succession WHERE old = ?1")?,
            allowed: connection
                .prepare_cached("SELECT service, expires, uses FROM allowed WHERE identity = ?1")?
                .query_map(identity, Allowed::read)?
                .collect::<Result<_, _>>()?,
        })
    }

    fn is_empty(&self) -> bool {
        !self.is_blocked && !self.is_rotated && self.allowed.is_empty()
    }
}
