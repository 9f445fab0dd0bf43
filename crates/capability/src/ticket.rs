//! Tickets, by which many identities get the content of one share.

use levada_core::{
    Digest, Identity, Random, RandomError, TextError, UnixTime, decode_text, encode_text, label,
    sha256,
};
use std::fmt;
use zeroize::Zeroizing;

use crate::error::TicketError;
use crate::id::id_of_secret;
use crate::reader::{MAX_ADDRESSES, MAX_NAME, Reader, append_addresses, are_addresses};

/// The name and the type of the service that a ticket's capability is for.
pub const SWARM: &str = "swarm";

const PREFIX: &str = "lvtkt1";
const KEY_LEN: usize = 32;
/// Root, length, expiry, number of peers, and the identity with its tag.
const TERMS_LEN: usize = 32 + 8 + 8 + 4 + 1 + KEY_LEN;
const MAX_LEN: usize =
    KEY_LEN + Ticket::SECRET_LEN + TERMS_LEN + 1 + MAX_ADDRESSES * (1 + MAX_NAME);

/// The terms of a ticket: its share, and the identities that may use it. The coordinator enforces
/// its copy of the terms; only `root` and `length` bind the coordinator, because the bearer
/// verifies the content against them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketTerms {
    /// The BLAKE3 hash of the content.
    pub root: [u8; 32],
    /// The length of the content, in bytes.
    pub length: u64,
    /// When it can no longer be exchanged, and the rights that it gave end.
    pub expires: UnixTime,
    /// How many identities may exchange it; at least 1.
    pub peers: u32,
    /// The only identity that may exchange it; `None` for each bearer.
    pub bound: Option<Identity>,
}

/// The key of the coordinator's node, its addresses, a secret, and the terms. A bearer exchanges
/// the secret at the node for a capability of their own identity.
#[derive(Clone)]
pub struct Ticket {
    node: Identity,
    secret: Zeroizing<[u8; Self::SECRET_LEN]>,
    terms: TicketTerms,
    addresses: Vec<String>,
}

impl Ticket {
    /// Length of the secret, in bytes.
    pub const SECRET_LEN: usize = 16;

    /// A ticket of these parts.
    ///
    /// # Errors
    /// [`TicketError::Addresses`] if there are more than 8, or if one is empty, longer than 255
    /// bytes or has control characters; [`TicketError::NoPeers`] if no peer may exchange it.
    pub fn new(
        node: Identity,
        secret: Zeroizing<[u8; Self::SECRET_LEN]>,
        terms: TicketTerms,
        addresses: Vec<String>,
    ) -> Result<Self, TicketError> {
        if !are_addresses(&addresses) {
            return Err(TicketError::Addresses);
        }
        if terms.peers == 0 {
            return Err(TicketError::NoPeers);
        }
        Ok(Self { node, secret, terms, addresses })
    }

    /// Generates the secret of a new ticket.
    ///
    /// # Errors
    /// [`RandomError`] if the random source failed.
    pub fn generate_secret(
        random: &dyn Random,
    ) -> Result<Zeroizing<[u8; Self::SECRET_LEN]>, RandomError> {
        let mut secret = Zeroizing::new([0; Self::SECRET_LEN]);
        random.fill(secret.as_mut())?;
        Ok(secret)
    }

    /// The hash that a node stores instead of the secret: SHA-256(`label::TICKET` ‖ 00 ‖ secret).
    /// The node finds a ticket by it, so that the time of a search depends on no secret.
    pub fn hash(secret: &[u8; Self::SECRET_LEN]) -> Digest {
        sha256(&[label::TICKET.as_bytes(), &[0], secret])
    }

    /// The id of the ticket with this hash, in lists and in the audit log.
    pub fn id(hash: &Digest) -> String {
        id_of_secret(hash)
    }

    /// The node of the coordinator. A client connects to this key only.
    pub fn node(&self) -> Identity {
        self.node
    }

    /// The secret, which the node accepts from as many identities as the terms say.
    pub fn secret(&self) -> &Zeroizing<[u8; Self::SECRET_LEN]> {
        &self.secret
    }

    /// What the ticket says of its share.
    pub fn terms(&self) -> &TicketTerms {
        &self.terms
    }

    /// Addresses of the node: unauthenticated hints.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The text form. It contains the secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        // Full capacity: a reallocation would leave a copy of the secret in freed memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_LEN));
        bytes.extend_from_slice(self.node.as_bytes());
        bytes.extend_from_slice(self.secret.as_ref());
        bytes.extend_from_slice(&self.terms.root);
        bytes.extend_from_slice(&self.terms.length.to_be_bytes());
        bytes.extend_from_slice(&self.terms.expires.0.to_be_bytes());
        bytes.extend_from_slice(&self.terms.peers.to_be_bytes());
        bytes.push(self.terms.bound.is_some().into());
        if let Some(bound) = &self.terms.bound {
            bytes.extend_from_slice(bound.as_bytes());
        }
        append_addresses(&mut bytes, &self.addresses);
        Zeroizing::new(encode_text(PREFIX, &bytes))
    }

    /// Parses the output of [`Self::to_text`]. The text form is canonical; the caller trims white
    /// space.
    ///
    /// # Errors
    /// [`TicketError::Text`] names the fault.
    pub fn from_text(text: &str) -> Result<Self, TicketError> {
        let bytes = Zeroizing::new(decode_text(PREFIX, text, MAX_LEN)?);
        Ok(Self::read(&bytes).ok_or(TextError::Content)?)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let node = Identity::from_bytes(reader.array()?);
        let secret = Zeroizing::new(reader.array()?);
        let terms = TicketTerms {
            root: reader.array()?,
            length: reader.u64()?,
            expires: UnixTime(reader.u64()?),
            peers: reader.u32()?,
            bound: match reader.byte()? {
                0 => None,
                1 => Some(Identity::from_bytes(reader.array()?)),
                _ => return None,
            },
        };
        let addresses = reader.addresses()?;
        reader.end()?;
        Self::new(node, secret, terms, addresses).ok()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("node", &self.node)
            .field("terms", &self.terms)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(bound: Option<Identity>) -> TicketTerms {
        TicketTerms { root: [3; 32], length: 1 << 40, expires: UnixTime(99), peers: 5, bound }
    }

    fn ticket(terms: TicketTerms, addresses: &[&str]) -> Result<Ticket, TicketError> {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        Ticket::new(Identity::from_bytes([7; 32]), Zeroizing::new([0xab; 16]), terms, addresses)
    }

    #[test]
    fn text_round_trips() {
        for bound in [None, Some(Identity::from_bytes([9; 32]))] {
            for addresses in [&[] as &[&str], &["[::1]:5382"], &["a"; 8]] {
                let text = ticket(terms(bound), addresses).unwrap().to_text();
                let read = Ticket::from_text(&text).unwrap();
                assert_eq!((read.node().as_bytes(), **read.secret()), (&[7; 32], [0xab; 16]));
                assert_eq!(
                    (*read.terms(), read.addresses().len()),
                    (terms(bound), addresses.len())
                );
                assert_eq!(read.to_text(), text);
            }
        }
    }

    #[test]
    fn rejects_parts_outside_their_limits() {
        for addresses in [&["a"; 9] as &[&str], &[""], &["a\x1b[1m"], &["a".repeat(256).as_str()]] {
            assert_eq!(ticket(terms(None), addresses).unwrap_err(), TicketError::Addresses);
        }
        let for_none = TicketTerms { peers: 0, ..terms(None) };
        assert_eq!(ticket(for_none, &[]).unwrap_err(), TicketError::NoPeers);
        let fixed = [[7; 32].as_slice(), &[1; 16], &[2; 32], &[0; 16]].concat();
        for rest in [[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 2, 0], [0, 0, 0, 1, 0, 9]] {
            let text = encode_text(PREFIX, &[fixed.as_slice(), &rest].concat());
            assert!(matches!(Ticket::from_text(&text), Err(TicketError::Text(_))), "{rest:?}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", ticket(terms(None), &["host:1"]).unwrap());
        assert!(shown.contains("host:1"));
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
    }

    #[test]
    fn hash_is_sha256_of_label_and_secret() {
        assert_eq!(Ticket::hash(&[5; 16]), sha256(&[b"levada/1 ticket\0", &[5; 16]]));
    }

    #[test]
    fn arbitrary_bytes_and_text_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let text = encode_text(PREFIX, bytes);
            if let Ok(ticket) = Ticket::from_text(&text) {
                assert_eq!(ticket.to_text().as_str(), text);
            }
            let _ = Ticket::from_text(&String::from_utf8_lossy(bytes));
        });
    }
}
