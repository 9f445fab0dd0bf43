//! Finds identities, sessions and links by a prefix of their text form, as tables print it.

use std::collections::BTreeSet;

use levada_capability::{LinkId, SessionId};
use levada_core::{Digits, Identity, byte_range, identity_range, with_beginning};
use rusqlite::types::FromSql;
use rusqlite::{Connection, Params};

use super::{Store, StoreError};

/// The maximum number of matches that are read: two are ambiguous already, and an error lists a
/// few.
const MAX_MATCHES: u32 = 4;

/// An object that the owner of a node can revoke by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revocable {
    /// A session, and every capability for it.
    Session(SessionId),
    /// A link of a capability, and every link derived from it.
    Link {
        /// Its id.
        link: LinkId,
        /// Its session.
        session: SessionId,
    },
}

impl Store {
    /// The identities that begin with `text` and occur in sessions, in the audit log or in the
    /// policy; at most four.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn identities_with_prefix(&self, text: &str) -> Result<BTreeSet<Identity>, StoreError> {
        let Some((lowest, highest)) = identity_range(text) else {
            return Ok(BTreeSet::new());
        };
        let found: Vec<[u8; 32]> = self.database.read(|connection| {
            let sql = "SELECT identity FROM allowed WHERE identity BETWEEN ?1 AND ?2
                 UNION SELECT identity FROM blocked WHERE identity BETWEEN ?1 AND ?2
                 UNION SELECT identity FROM group_member WHERE identity BETWEEN ?1 AND ?2
                 UNION SELECT holder FROM session WHERE holder BETWEEN ?1 AND ?2
                 UNION SELECT requester FROM session WHERE requester BETWEEN ?1 AND ?2
                 UNION SELECT identity FROM audit WHERE identity BETWEEN ?1 AND ?2 LIMIT ?3";
            column(connection, sql, (lowest, highest, MAX_MATCHES))
        })?;
        // The range does not cover the last characters, which are a checksum.
        Ok(with_beginning(found.into_iter().map(Identity::from_bytes), text))
    }

    /// The sessions, and the links of capabilities that were granted, used or revoked, whose ids
    /// begin with `text`; at most four of each.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn revocable_with_prefix(&self, text: &str) -> Result<BTreeSet<Revocable>, StoreError> {
        let mut all = BTreeSet::new();
        if let Some((lowest, highest)) =
            byte_range::<16>(text, Digits::HEX).filter(|_| text.len() <= 32)
        {
            let sql = "SELECT id FROM session WHERE id BETWEEN ?1 AND ?2 LIMIT ?3";
            let found: Vec<[u8; 16]> = self
                .database
                .read(|connection| column(connection, sql, (lowest, highest, MAX_MATCHES)))?;
            all.extend(found.into_iter().map(|id| Revocable::Session(SessionId::from_bytes(id))));
        }
        if let Some((lowest, highest)) =
            byte_range::<32>(text, Digits::HEX).filter(|_| text.len() <= 64)
        {
            let links = self.database.read(|connection| {
                connection
                    .prepare(
                        "SELECT link_id AS link, id AS session FROM session
                         WHERE link_id BETWEEN ?1 AND ?2
                         UNION SELECT link, session FROM link_use WHERE link BETWEEN ?1 AND ?2
                         UNION SELECT link, session FROM revocation WHERE link BETWEEN ?1 AND ?2
                         LIMIT ?3",
                    )?
                    .query_map((lowest, highest, MAX_MATCHES), |row| {
                        let link = LinkId::from_bytes(row.get("link")?);
                        Ok(Revocable::Link {
                            link,
                            session: SessionId::from_bytes(row.get("session")?),
                        })
                    })?
                    .collect::<Result<Vec<_>, _>>()
            })?;
            all.extend(links);
        }
        Ok(all)
    }
}

fn column<T: FromSql>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(sql)?.query_map(params, |row| row.get(0))?.collect()
}
