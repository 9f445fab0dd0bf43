//! Finds identities, sessions and links by a prefix of their text form, as tables print it.

use std::collections::BTreeSet;

use levada_capability::{LinkId, SessionId};
use levada_core::Identity;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Params};

use super::{Store, StoreError};

/// The digits of a text form, and the width of a digit in bits.
#[derive(Clone, Copy)]
struct Digits {
    all: &'static str,
    bits: usize,
}

/// The digits of base32 in identities (RFC 4648, lower case).
const BASE32: Digits = Digits { all: "abcdefghijklmnopqrstuvwxyz234567", bits: 5 };
/// The digits of ids.
const HEX: Digits = Digits { all: "0123456789abcdef", bits: 4 };
/// The maximum number of matches that are read: two are ambiguous already.
const MAX_MATCHES: u32 = 2;

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
    /// policy; at most two.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn identities_with_prefix(&self, text: &str) -> Result<BTreeSet<Identity>, StoreError> {
        let Some((lowest, highest)) =
            text.strip_prefix("lv").and_then(|rest| range::<32>(rest, BASE32))
        else {
            return Ok(BTreeSet::new());
        };
        let found: Vec<[u8; 32]> = self.database.read(|connection| {
            let sql = "SELECT identity FROM allowed WHERE identity BETWEEN ?1 AND ?2
                 UNION SELECT identity FROM blocked WHERE identity BETWEEN ?1 AND ?2
                 UNION SELECT holder FROM session WHERE holder BETWEEN ?1 AND ?2
                 UNION SELECT requester FROM session WHERE requester BETWEEN ?1 AND ?2
                 UNION SELECT identity FROM audit WHERE identity BETWEEN ?1 AND ?2 LIMIT ?3";
            column(connection, sql, (lowest, highest, MAX_MATCHES))
        })?;
        let found = found.into_iter().map(Identity::from_bytes);
        // The range does not cover the last characters, which are a checksum.
        Ok(found.filter(|identity| identity.to_string().starts_with(text)).collect())
    }

    /// The sessions, and the links of capabilities in the audit log, whose ids begin with `text`;
    /// at most two of each.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn revocable_with_prefix(&self, text: &str) -> Result<BTreeSet<Revocable>, StoreError> {
        let mut all = BTreeSet::new();
        if let Some((lowest, highest)) = range::<16>(text, HEX).filter(|_| text.len() <= 32) {
            let sql = "SELECT id FROM session WHERE id BETWEEN ?1 AND ?2 LIMIT ?3";
            let found: Vec<[u8; 16]> = self
                .database
                .read(|connection| column(connection, sql, (lowest, highest, MAX_MATCHES)))?;
            all.extend(found.into_iter().map(|id| Revocable::Session(SessionId::from_bytes(id))));
        }
        if let Some((lowest, highest)) = range::<32>(text, HEX).filter(|_| text.len() <= 64) {
            let links = self.database.read(|connection| {
                connection
                    .prepare(
                        "SELECT DISTINCT link, session FROM audit
                         WHERE link BETWEEN ?1 AND ?2 AND session IS NOT NULL LIMIT ?3",
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

/// The lowest and the highest `N` bytes that begin with these digits; `None` if a character is not
/// a digit. Digits beyond `N` bytes are ignored.
fn range<const N: usize>(text: &str, digits: Digits) -> Option<([u8; N], [u8; N])> {
    let width = digits.bits;
    let mut lowest = [0; N];
    let mut highest = [0xff; N];
    for (at, c) in text.chars().enumerate() {
        let value = digits.all.find(c)?;
        for bit in 0..width {
            let position = at * width + bit;
            let mask = 0x80 >> (position % 8);
            if value >> (width - 1 - bit) & 1 == 1 {
                *lowest.get_mut(position / 8).unwrap_or(&mut 0) |= mask;
            } else {
                *highest.get_mut(position / 8).unwrap_or(&mut 0) &= !mask;
            }
        }
    }
    Some((lowest, highest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range_of_bytes() {
        assert_eq!(range::<2>("", HEX), Some(([0, 0], [255, 255])));
        assert_eq!(range::<2>("a", HEX), Some(([0xa0, 0], [0xaf, 255])));
        assert_eq!(range::<2>("a7ff12", HEX), Some(([0xa7, 0xff], [0xa7, 0xff])));
        assert_eq!(range::<2>("x", HEX), None);
        let identity = Identity::from_bytes([0x5a; 32]);
        for length in [1, 8, 58] {
            let text: String = identity.to_string().chars().skip(2).take(length).collect();
            let (lowest, highest) = range::<32>(&text, BASE32).unwrap();
            assert!(lowest <= *identity.as_bytes() && *identity.as_bytes() <= highest, "{text}");
        }
    }
}
