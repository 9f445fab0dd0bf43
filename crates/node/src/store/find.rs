//! From the beginning of an identity or id, as tables print it, to what it stands for.

use std::collections::BTreeSet;

use levada_capability::{LinkId, SessionId};
use levada_core::Identity;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Params};

use super::{Store, StoreError};

/// The digits of base32, as identities have them (RFC 4648, lower case), and their width in bits.
const BASE32: (&str, usize) = ("abcdefghijklmnopqrstuvwxyz234567", 5);
/// The digits of ids.
const HEX: (&str, usize) = ("0123456789abcdef", 4);
/// Two are ambiguous already: no more are read.
const MOST: u32 = 2;

/// What the owner of a node can revoke by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revocable {
    /// A session, and every capability for it.
    Session(SessionId),
    /// A link of a capability, and all that was derived from it.
    Link {
        /// Its id.
        link: LinkId,
        /// Its session.
        session: SessionId,
    },
}

impl Store {
    /// The identities that begin like `text` and occur in sessions, in the audit log or in the policy; two if there are
    /// more.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn identities_like(&self, text: &str) -> Result<BTreeSet<Identity>, StoreError> {
        let Some((least, most)) =
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
            column(connection, sql, (least, most, MOST))
        })?;
        let found = found.into_iter().map(Identity::from_bytes);
        // Its last characters are a checksum, of which the range says nothing.
        Ok(found.filter(|identity| identity.to_string().starts_with(text)).collect())
    }

    /// The sessions, and the links of capabilities in the audit log, whose ids begin like `text`; two if there are
    /// more.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn revocable_like(&self, text: &str) -> Result<BTreeSet<Revocable>, StoreError> {
        let mut all = BTreeSet::new();
        if let Some((least, most)) = range::<16>(text, HEX).filter(|_| text.len() <= 32) {
            let sql = "SELECT id FROM session WHERE id BETWEEN ?1 AND ?2 LIMIT ?3";
            let found: Vec<[u8; 16]> =
                self.database.read(|connection| column(connection, sql, (least, most, MOST)))?;
            all.extend(found.into_iter().map(|id| Revocable::Session(SessionId::from_bytes(id))));
        }
        if let Some((least, most)) = range::<32>(text, HEX).filter(|_| text.len() <= 64) {
            let links = self.database.read(|connection| {
                connection
                    .prepare(
                        "SELECT DISTINCT link, session FROM audit
                         WHERE link BETWEEN ?1 AND ?2 AND session IS NOT NULL LIMIT ?3",
                    )?
                    .query_map((least, most, MOST), |row| {
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

/// The least and the greatest `N` bytes that begin with these digits; `None` if there is a character that is none. Digits
/// beyond `N` bytes are not looked at.
fn range<const N: usize>(text: &str, (digits, width): (&str, usize)) -> Option<([u8; N], [u8; N])> {
    let (mut least, mut most) = ([0; N], [0xff; N]);
    for (at, c) in text.chars().enumerate() {
        let value = digits.find(c)?;
        for bit in 0..width {
            let place = at * width + bit;
            let mask = 0x80 >> (place % 8);
            if value >> (width - 1 - bit) & 1 == 1 {
                *least.get_mut(place / 8).unwrap_or(&mut 0) |= mask;
            } else {
                *most.get_mut(place / 8).unwrap_or(&mut 0) &= !mask;
            }
        }
    }
    Some((least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_a_range_of_bytes() {
        assert_eq!(range::<2>("", HEX), Some(([0, 0], [255, 255])));
        assert_eq!(range::<2>("a", HEX), Some(([0xa0, 0], [0xaf, 255])));
        assert_eq!(range::<2>("a7ff12", HEX), Some(([0xa7, 0xff], [0xa7, 0xff])));
        assert_eq!(range::<2>("x", HEX), None);
        let identity = Identity::from_bytes([0x5a; 32]);
        for length in [1, 8, 58] {
            let text: String = identity.to_string().chars().skip(2).take(length).collect();
            let (least, most) = range::<32>(&text, BASE32).unwrap();
            assert!(least <= *identity.as_bytes() && *identity.as_bytes() <= most, "{text}");
        }
    }
}
