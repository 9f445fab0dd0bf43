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

/// The origin of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightSource {
    /// A redeemed invitation.
    Invitation,
    /// The owner gave it to a known identity.
    Owner,
}

impl RightSource {
    /// One lower-case word, as in the database and in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invitation => "invitation",
            Self::Owner => "owner",
        }
    }

    pub(super) fn read(row: &Row) -> rusqlite::Result<Self> {
        Ok(match row.get::<_, String>("source")?.as_str() {
            "owner" => Self::Owner,
            _ => Self::Invitation,
        })
    }
}

/// The needs of a request that a right must meet.
#[derive(Clone, Copy, Debug)]
pub struct RightRequest<'a> {
    /// The name of the service.
    pub service: &'a str,
    /// A right to every service does not include this one.
    pub by_name: bool,
    /// The starts that the session permits.
    pub starts: u32,
    /// The wanted end of the session; `None` for the end of the right that lasts longest.
    pub expires: Option<UnixTime>,
}

/// The right that a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenRight {
    /// Its row.
    pub(super) id: i64,
    /// Its origin.
    pub source: RightSource,
    /// The starts that it still permits; `None` for any number.
    pub uses: Option<u32>,
    /// The latest end of the session.
    pub until: UnixTime,
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
pub(super) struct Allowed {
    id: i64,
    source: RightSource,
    /// The service; `None` for every service.
    service: Option<String>,
    expires: UnixTime,
    /// The starts that it still permits; `None` for any number.
    uses: Option<u32>,
}

impl Allowed {
    fn read(row: &Row) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("rowid")?,
            source: RightSource::read(row)?,
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

/// Reads the rights of one identity.
pub(super) fn allowed(
    connection: &Connection,
    identity: &Identity,
) -> rusqlite::Result<Vec<Allowed>> {
    let sql = "SELECT rowid, source, service, expires, uses FROM allowed WHERE identity = ?1";
    connection.prepare_cached(sql)?.query_map([identity.as_bytes()], Allowed::read)?.collect()
}

/// Chooses the right that a request uses among the rights of one identity; `None` if none permits
/// it.
///
/// Of the rights with enough uses, the one that lasts longest bounds the end of the session. Of
/// those that last as long as the session then does, one with any number of uses is preferred, then
/// the one that ends first.
pub(super) fn choose(
    allowed: &[Allowed],
    request: &RightRequest<'_>,
    now: UnixTime,
) -> Option<ChosenRight> {
    let suffices = |right: &&Allowed| {
        right.is_valid(now)
            && right.covers(request.service, request.by_name)
            && right.uses.is_none_or(|uses| uses >= request.starts)
    };
    let latest = allowed.iter().filter(suffices).map(|right| right.expires).max()?;
    let until = request.expires.map_or(latest, |expires| expires.min(latest));
    let lasting = allowed.iter().filter(suffices).filter(|right| right.expires >= until);
    let right = lasting.min_by_key(|right| (right.uses.is_some(), right.expires))?;
    Some(ChosenRight { id: right.id, source: right.source, uses: right.uses, until })
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

    /// The right of `identity` that a request uses; `None` if none permits it. See [`choose`].
    pub fn choose(
        &self,
        identity: &Identity,
        request: &RightRequest<'_>,
        now: UnixTime,
    ) -> Option<ChosenRight> {
        let entry = self.0.get(identity)?;
        if entry.is_blocked || entry.is_rotated {
            return None;
        }
        choose(&entry.allowed, request, now)
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
        let exists = |sql: &str| connection.prepare_cached(sql)?.exists([identity.as_bytes()]);
        Ok(Self {
            is_blocked: exists("SELECT 1 FROM blocked WHERE identity = ?1")?,
            is_rotated: exists("SELECT 1 FROM succession WHERE old = ?1")?,
            allowed: allowed(connection, identity)?,
        })
    }

    fn is_empty(&self) -> bool {
        !self.is_blocked && !self.is_rotated && self.allowed.is_empty()
    }
}
