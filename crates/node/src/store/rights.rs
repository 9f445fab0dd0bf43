//! The allow-list, blocks and rotated keys in memory, because they are looked up for every
//! connection and operation. Each entry is a copy of the tables, read in the transaction that
//! changes them, and replaced before another transaction begins.

use std::collections::HashMap;

use levada_core::Identity;
use rusqlite::Connection;
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
    /// The services that it may request; `None` stands for every service.
    allowed: Vec<Option<String>>,
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

    /// Whether `identity` may request `service`. With `by_name`, an entry for every service does
    /// not count.
    pub fn allows(&self, identity: &Identity, service: &str, by_name: bool) -> bool {
        self.0.get(identity).is_some_and(|entry| {
            let listed = entry.allowed.iter().any(|allowed| match allowed {
                Some(allowed) => allowed == service,
                None => !by_name,
            });
            listed && !entry.is_blocked && !entry.is_rotated
        })
    }

    /// Whether `identity` may request any service, unless it is denied.
    pub fn allows_any(&self, identity: &Identity) -> bool {
        self.0.get(identity).is_some_and(|entry| !entry.allowed.is_empty())
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
                .prepare_cached("SELECT service FROM allowed WHERE identity = ?1")?
                .query_map(identity, |row| row.get("service"))?
                .collect::<Result<_, _>>()?,
        })
    }

    fn is_empty(&self) -> bool {
        !self.is_blocked && !self.is_rotated && self.allowed.is_empty()
    }
}
