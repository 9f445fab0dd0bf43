//! Invitations. Each can be used once; only the hash of its secret is stored.

use levada_capability::Invitation;
use levada_core::{Digest, Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension, Transaction};
use thiserror::Error;

use super::access::{self, NewRight};
use super::rights::RightSource;
use super::{Fault, NewAuditEntry, Store, StoreError, audit, row};

/// The content of a redeemed invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redeemed {
    /// The service that may be requested; `None` for every service.
    pub service: Option<String>,
    /// The name under which the node pins the guest, if the invitation has one.
    pub name: Option<String>,
}

/// An invitation that can be redeemed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationSummary {
    /// The hash of its secret.
    pub hash: Digest,
    /// The service that it opens; `None` for every service.
    pub service: Option<String>,
    /// The name under which the node pins the guest.
    pub name: Option<String>,
    /// The time at which it was made.
    pub created: UnixTime,
    /// The time from which it cannot be redeemed.
    pub expires: UnixTime,
}

/// Why an invitation was not redeemed.
#[derive(Debug, Error)]
pub enum RedeemError {
    /// This node has not issued this invitation.
    #[error("no such invitation")]
    Unknown,
    /// It was redeemed before, or voided.
    #[error("the invitation has been used or cancelled")]
    Used,
    /// It has expired.
    #[error("the invitation has expired")]
    Expired,
    /// The database failed; the invitation is not used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Stores an invitation by the hash of its secret. It allows requests of `service`, or of every
    /// service if `None`, and gives the guest `name`.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn add_invitation(
        &self,
        hash: &Digest,
        service: Option<&str>,
        name: Option<&str>,
        expires: UnixTime,
        now: UnixTime,
    ) -> Result<(), StoreError> {
        let add = |tx: &Transaction| {
            tx.execute(
                "INSERT INTO invitation (hash, service, name, expires, created)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                (hash, service, name, row::from_time(expires), row::from_time(now)),
            )?;
            let text = name.unwrap_or_default();
            let entry = NewAuditEntry { service, text, ..NewAuditEntry::new("invite", "done") };
            Ok(audit::add(tx, &entry, now)?)
        };
        self.write_then(add, |()| self.add_secret(*hash))
    }

    /// The invitations that can be redeemed, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn invitations(&self, now: UnixTime) -> Result<Vec<InvitationSummary>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT * FROM invitation WHERE used IS NULL AND expires > ?1
                     ORDER BY created, hash",
                )?
                .query_map([row::from_time(now)], |row| {
                    Ok(InvitationSummary {
                        hash: row.get("hash")?,
                        service: row.get("service")?,
                        name: row.get("name")?,
                        created: row::time(row, "created")?,
                        expires: row::time(row, "expires")?,
                    })
                })?
                .collect()
        })
    }

    /// Makes an invitation void. Returns false if it was used, expired or void before.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn cancel_invitation(&self, hash: &Digest, now: UnixTime) -> Result<bool, StoreError> {
        self.write(|tx| {
            let cancelled = tx.execute(
                "UPDATE invitation SET used = ?2
                 WHERE hash = ?1 AND used IS NULL AND expires > ?2",
                (hash, row::from_time(now)),
            )?;
            if cancelled == 1 {
                let text = Invitation::id(hash);
                let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new("cancel", "done") };
                audit::add(tx, &entry, now)?;
            }
            Ok(cancelled == 1)
        })
    }

    /// Marks an invitation as used and adds `identity` to the allow-list, in one transaction.
    ///
    /// # Errors
    /// [`RedeemError`] is the reason of the refusal; nothing has changed.
    pub fn redeem(
        &self,
        hash: &Digest,
        identity: &Identity,
        now: UnixTime,
    ) -> Result<Redeemed, RedeemError> {
        let outcome = self.write_rights([*identity], |tx| {
            let found = find(tx, hash)?.ok_or(Fault::Refused(RedeemError::Unknown))?;
            if found.used {
                return Err(Fault::Refused(RedeemError::Used));
            }
            if found.expires <= now {
                return Err(Fault::Refused(RedeemError::Expired));
            }
            tx.execute(
                "UPDATE invitation SET used = ?2, identity = ?3 WHERE hash = ?1",
                (hash, row::from_time(now), identity.as_bytes()),
            )?;
            let Found { service, name, .. } = found;
            let right = NewRight {
                identity: *identity,
                service: service.as_deref(),
                expires: UnixTime::NEVER,
                uses: None,
            };
            access::add(tx, &right, RightSource::Invitation, now)?;
            let entry = NewAuditEntry {
                identity: Some(*identity),
                service: service.as_deref(),
                ..NewAuditEntry::new("join", "done")
            };
            audit::add(tx, &entry, now)?;
            Ok(Redeemed { service, name })
        });
        if let Err(RedeemError::Expired) = outcome {
            self.store_time(now)?;
        }
        outcome
    }
}

struct Found {
    service: Option<String>,
    name: Option<String>,
    expires: UnixTime,
    used: bool,
}

fn find(connection: &Connection, hash: &Digest) -> rusqlite::Result<Option<Found>> {
    connection
        .prepare_cached("SELECT * FROM invitation WHERE hash = ?1")?
        .query_row([hash], |row| {
            Ok(Found {
                service: row.get("service")?,
                name: row.get("name")?,
                expires: row::time(row, "expires")?,
                used: row::optional_time(row, "used")?.is_some(),
            })
        })
        .optional()
}
