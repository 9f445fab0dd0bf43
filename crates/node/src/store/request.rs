//! Creates sessions, and uses the rights that permit them.

use levada_core::UnixTime;
use rusqlite::{Connection, Transaction};
use thiserror::Error;

use super::session::{Permission, create};
use super::{Fault, NewSession, RightRequest, Store, StoreError, rights};

/// The reason why a session was not created.
#[derive(Debug, Error)]
pub enum RequestError {
    /// No right permits the request: it was removed, has expired, or is used up.
    #[error("no right permits this request")]
    NotPermitted,
    /// The database failed; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Creates a session. Its grant may be sent after this has returned.
    ///
    /// # Errors
    /// [`RequestError`] if no right permits it, it is not on disk, or the id is taken.
    pub fn create_session(&self, new: &NewSession, now: UnixTime) -> Result<(), RequestError> {
        let created = self.write_request(new, |tx| {
            if !use_permission(tx, new, now)? {
                return Err(Fault::Refused(RequestError::NotPermitted));
            }
            Ok(create(tx, new, now)?)
        });
        if let Err(RequestError::NotPermitted) = created {
            self.store_time(now)?;
        }
        created
    }

    /// As `write`, for the request of a session; the rights in memory follow if it uses one.
    pub(super) fn write_request<T, E: From<StoreError>>(
        &self,
        new: &NewSession,
        work: impl FnOnce(&Transaction) -> Result<T, Fault<E>>,
    ) -> Result<T, E> {
        match new.permission {
            Permission::Given | Permission::Group(_) | Permission::Rule(_) => self.write(work),
            Permission::Right { .. } => self.write_rights([new.requester], work),
        }
    }
}

/// Uses the right for a request. Returns false if none permits it.
pub(super) fn use_permission(
    connection: &Connection,
    new: &NewSession,
    now: UnixTime,
) -> rusqlite::Result<bool> {
    match new.permission {
        Permission::Given | Permission::Group(_) | Permission::Rule(_) => Ok(true),
        Permission::Right { by_name, starts } => use_right(connection, new, by_name, starts, now),
    }
}

/// Uses a right for a session with this number of starts, in the transaction that creates it.
/// Returns false if no right permits it until the end of the session.
fn use_right(
    connection: &Connection,
    new: &NewSession,
    by_name: bool,
    starts: u32,
    now: UnixTime,
) -> rusqlite::Result<bool> {
    let expires = Some(new.expires);
    let request = RightRequest { service: new.service, by_name, starts, expires };
    let allowed = rights::allowed(connection, &new.requester)?;
    let chosen = rights::choose(&allowed, &request, now);
    let Some(right) = chosen.filter(|right| right.until >= new.expires) else { return Ok(false) };
    if right.uses.is_some() {
        let sql = "UPDATE allowed SET uses = uses - ?2 WHERE rowid = ?1";
        connection.execute(sql, (right.id, starts))?;
    }
    Ok(true)
}
