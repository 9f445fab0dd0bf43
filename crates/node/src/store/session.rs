//! Sessions: creates and finds them.

use std::fmt;
use std::sync::Arc;

use levada_capability::{Chain, LinkId, SessionId};
use levada_core::{Framing, Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use zeroize::Zeroizing;

use super::session_state::{SessionState, state};
use super::{NewAuditEntry, Store, StoreError, audit, row};

/// A session to create. Has no `Debug`, because it has the root secret.
#[derive(Clone)]
pub struct NewSession<'a> {
    /// Its id, random.
    pub id: SessionId,
    /// The secret from which the first link's secret is derived.
    pub root: &'a [u8; 32],
    /// The name of the service.
    pub service: &'a str,
    /// The framing of its connections.
    pub framing: Framing,
    /// The identity that requested it.
    pub requester: Identity,
    /// The identity that the first link names.
    pub holder: Identity,
    /// The first link, encoded.
    pub link: &'a [u8],
    /// The id of the first link.
    pub link_id: LinkId,
    /// When the right to start it expires.
    pub expires: UnixTime,
    /// A summary for the audit log; may be empty.
    pub about: &'a str,
    /// The permission to request it.
    pub permission: Permission,
}

/// The permission to request a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The node, its configuration or a ticket gives it.
    Given,
    /// The group with this name gives it: the session is started only while a right of its
    /// requester exists.
    Group(Arc<str>),
    /// A rule of the configuration gives it.
    Rule(RuleGrant),
    /// A right in the store gives it, and is used by the request.
    Right {
        /// A right to every service does not include this one.
        by_name: bool,
        /// The starts that the session permits, which count as uses of the right.
        starts: u32,
    },
}

/// A rule by which a session was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleGrant {
    /// The entity that approved the session; `None` if the rule asks none.
    pub approved_by: Option<Identity>,
}

/// The data of a session that the verification of a capability needs.
pub struct SessionRecord {
    /// The secret from which the first link's secret is derived.
    pub root: Zeroizing<[u8; 32]>,
    /// The name of the service.
    pub service: String,
    /// The framing of its connections.
    pub framing: Framing,
    /// Its state.
    pub state: SessionState,
    /// The id of the first link.
    pub link_id: LinkId,
    /// The identity that requested the session, or the key that succeeded it.
    pub requester: Identity,
    /// The group by which it was requested.
    pub by_group: Option<String>,
    /// The rule that has given it; `None` if another right has.
    pub rule: Option<RuleGrant>,
}

impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionRecord({}, {}, {})", self.service, self.framing, self.state)
    }
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// Its id.
    pub id: SessionId,
    /// The name of the service.
    pub service: String,
    /// The framing of its connections.
    pub framing: Framing,
    /// The identity that requested it.
    pub requester: Identity,
    /// The identity that the first link names.
    pub holder: Identity,
    /// The id of the first link.
    pub link_id: LinkId,
    /// Its state.
    pub state: SessionState,
    /// When it was requested.
    pub created: UnixTime,
    /// When the right to start it expires.
    pub expires: UnixTime,
    /// When it was first started.
    pub started: Option<UnixTime>,
    /// When it ended.
    pub ended: Option<UnixTime>,
    /// How many times it was started, by any link.
    pub starts: u32,
    /// The starts that its first link permits.
    pub uses: u32,
}

impl SessionSummary {
    /// Returns true if it has expired, whether or not it was started.
    pub fn has_expired(&self, now: UnixTime) -> bool {
        self.state == SessionState::Expired || row::has_expired(self.expires, now)
    }

    /// The starts that its first link still permits.
    pub fn starts_left(&self, now: UnixTime) -> u32 {
        match self.state.has_ended() || self.has_expired(now) {
            true => 0,
            false => self.uses.saturating_sub(self.starts),
        }
    }
}

impl Store {
    /// A session by its id; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn session(&self, id: &SessionId) -> Result<Option<SessionRecord>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT * FROM session WHERE id = ?1")?
                .query_row([id.as_bytes()], record)
                .optional()
        })
    }

    /// The first of these links that is revoked, if any.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn revoked(&self, links: &[LinkId]) -> Result<Option<LinkId>, StoreError> {
        self.database.read(|connection| first_revoked(connection, links))
    }
}

/// The columns of a session that transactions check.
pub(super) struct Found {
    pub service: String,
    pub state: SessionState,
    pub link_id: LinkId,
    pub requester: Identity,
    pub expires: UnixTime,
}

pub(super) fn find(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<Found>> {
    connection
        .prepare_cached(
            "SELECT service, state, link_id, requester, expires FROM session WHERE id = ?1",
        )?
        .query_row([id.as_bytes()], |row| {
            Ok(Found {
                service: row.get("service")?,
                state: state(row)?,
                link_id: row::link_id(row, "link_id")?,
                requester: row::identity(row, "requester")?,
                expires: row::time(row, "expires")?,
            })
        })
        .optional()
}

pub(super) fn first_revoked(
    connection: &Connection,
    links: &[LinkId],
) -> rusqlite::Result<Option<LinkId>> {
    let mut query = connection.prepare_cached("SELECT 1 FROM revocation WHERE link = ?1")?;
    for link in links {
        if query.exists([link.as_bytes()])? {
            return Ok(Some(*link));
        }
    }
    Ok(None)
}

pub(super) fn create(
    connection: &Connection,
    new: &NewSession,
    now: UnixTime,
) -> rusqlite::Result<()> {
    insert(connection, new, now)?;
    let entry = NewAuditEntry {
        identity: Some(new.requester),
        service: Some(new.service),
        session: Some(new.id),
        link: Some(new.link_id),
        text: new.about,
        ..NewAuditEntry::new("request", "granted")
    };
    audit::add(connection, &entry, now)
}

fn insert(connection: &Connection, new: &NewSession, now: UnixTime) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO session
         (id, root, service, framing, requester, holder, link, link_id, expires, created, by_group,
          rule)
         VALUES (:id, :root, :service, :framing, :requester, :holder, :link, :link_id, :expires,
                 :now, :by_group, :rule)",
    )?;
    let by_group = match &new.permission {
        Permission::Group(name) => Some(&**name),
        _ => None,
    };
    let approved_by = match &new.permission {
        Permission::Rule(RuleGrant { approved_by }) => Some(approved_by),
        _ => None,
    };
    let rule = approved_by.map(|entity| entity.as_ref().map_or(&[][..], |one| one.as_bytes()));
    insert.execute(named_params! {
        ":rule": rule,
        ":id": new.id.as_bytes(),
        ":root": new.root,
        ":service": new.service,
        ":framing": new.framing.to_string(),
        ":requester": new.requester.as_bytes(),
        ":holder": new.holder.as_bytes(),
        ":link": new.link,
        ":link_id": new.link_id.as_bytes(),
        ":expires": row::from_time(new.expires),
        ":now": row::from_time(now),
        ":by_group": by_group,
    })?;
    Ok(())
}

pub(super) fn record(row: &Row) -> rusqlite::Result<SessionRecord> {
    Ok(SessionRecord {
        root: Zeroizing::new(row.get("root")?),
        service: row.get("service")?,
        framing: row::parsed(row, "framing")?,
        state: state(row)?,
        link_id: row::link_id(row, "link_id")?,
        requester: row::identity(row, "requester")?,
        by_group: row.get("by_group")?,
        rule: rule(row)?,
    })
}

fn rule(row: &Row) -> rusqlite::Result<Option<RuleGrant>> {
    let Some(entity) = row.get::<_, Option<Vec<u8>>>("rule")? else { return Ok(None) };
    let approved_by = if entity.is_empty() { None } else { Some(row::identity(row, "rule")?) };
    Ok(Some(RuleGrant { approved_by }))
}

pub(super) fn summary(row: &Row) -> rusqlite::Result<SessionSummary> {
    Ok(SessionSummary {
        id: row::session_id(row, "id")?,
        service: row.get("service")?,
        framing: row::parsed(row, "framing")?,
        requester: row::identity(row, "requester")?,
        holder: row::identity(row, "holder")?,
        link_id: row::link_id(row, "link_id")?,
        state: state(row)?,
        created: row::time(row, "created")?,
        expires: row::time(row, "expires")?,
        started: row::optional_time(row, "started")?,
        ended: row::optional_time(row, "ended")?,
        starts: row.get("starts")?,
        uses: first_link_uses(row)?,
    })
}

/// The starts that the first link of a session permits.
fn first_link_uses(row: &Row) -> rusqlite::Result<u32> {
    let no_signatures: &[[u8; 0]] = &[];
    // The node has encoded this link itself.
    let first = Chain::decode(vec![row.get("link")?], no_signatures).ok();
    Ok(first.map_or(0, |chain| chain.last_link().uses))
}
