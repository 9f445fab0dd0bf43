//! PATH: the server, the middleboxes, the contexts, and who may do what (`docs/protocol.md`,
//! "PATH").

mod codec;
mod keys;

use levada_core::{Identity, label, sha256};

use super::ContextError;

/// The most middleboxes of a path.
pub const MAX_MIDDLEBOXES: usize = 16;
/// The most contexts of a path, besides context 0.
pub const MAX_CONTEXTS: usize = 64;

/// The key encapsulation by which the server sends each middlebox its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kem {
    /// HPKE with X25519 (RFC 9180). What middleboxes may read is not safe from a later quantum
    /// computer.
    X25519 = 1,
    /// ML-KEM-768 and X25519 together ([`levada_core::seal`]).
    Hybrid = 2,
}

/// What a middlebox may do in a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Right {
    /// Neither read nor write.
    #[default]
    None = 0,
    /// Read.
    Read = 1,
    /// Read and write.
    Write = 2,
}

/// What a context carries, as far as a cache has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Anything else.
    Other = 0,
    /// The head of a request.
    RequestHead = 1,
    /// The body of a request.
    RequestBody = 2,
    /// The head of a response.
    ResponseHead = 3,
    /// The body of a response.
    ResponseBody = 4,
    /// Some fields of a head.
    Fields = 5,
    /// Trailers.
    Trailers = 6,
}

/// The server or a middlebox: its key, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// Its key.
    pub identity: Identity,
    /// `host:port`, at most 255 bytes. A hint: the key decides.
    pub address: String,
}

/// A middlebox of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its key and address.
    pub party: Party,
    /// The id under which it may have keys of an earlier session.
    pub resume: Option<ResumeId>,
}

/// Names a middlebox's keys of an earlier session.
pub type ResumeId = [u8; 16];

/// A context of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// What it carries.
    pub purpose: Purpose,
    /// Plaintexts are filled up to a multiple of this many bytes; 0 counts as 1.
    pub pad: u8,
    /// What each middlebox may do, in the order of the path.
    pub rights: Vec<Right>,
}

/// A path. Context `c` on the wire is `contexts[c - 1]`; context 0 belongs to the endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The key encapsulation.
    pub kem: Kem,
    /// The server.
    pub server: Party,
    /// The middleboxes, the first next to the client; 1 to [`MAX_MIDDLEBOXES`].
    pub hops: Vec<Hop>,
    /// The contexts; 1 to [`MAX_CONTEXTS`].
    pub contexts: Vec<Context>,
}

impl Path {
    /// The right of a hop (from 1) in a context (from 0); none if there is no such cell.
    pub fn right(&self, context: u8, hop: u8) -> Right {
        let cell = usize::from(context).checked_sub(1).zip(usize::from(hop).checked_sub(1));
        let row = cell.and_then(|(context, hop)| self.contexts.get(context)?.rights.get(hop));
        row.copied().unwrap_or_default()
    }

    /// The party after a hop (from 1) as seen from the client: a middlebox or the server.
    pub fn after(&self, hop: u8) -> &Party {
        self.hops.get(usize::from(hop)).map_or(&self.server, |next| &next.party)
    }

    /// Whether any middlebox has at least this right in a context.
    pub(crate) fn any(&self, context: u8, right: Right) -> bool {
        let at = usize::from(context).checked_sub(1);
        let row = at.and_then(|at| self.contexts.get(at));
        row.is_some_and(|row| row.rights.iter().any(|given| *given >= right))
    }

    /// The context with this purpose, the first one if there are more.
    pub fn context(&self, purpose: Purpose) -> Option<u8> {
        let at = self.contexts.iter().position(|context| context.purpose == purpose)?;
        u8::try_from(at + 1).ok()
    }

    /// The rules that concern several fields.
    fn check(&self) -> Result<(), ContextError> {
        let mut keys = vec![self.server.identity];
        keys.extend(self.hops.iter().map(|hop| hop.party.identity));
        for (at, key) in keys.iter().enumerate() {
            if keys[..at].contains(key) || !keys::is_usable(key) {
                return Err(ContextError::Malformed("a PATH with a key twice, or a weak one"));
            }
        }
        let unique = [
            Purpose::RequestHead,
            Purpose::RequestBody,
            Purpose::ResponseHead,
            Purpose::ResponseBody,
        ];
        for purpose in unique {
            if self.contexts.iter().filter(|context| context.purpose == purpose).count() > 1 {
                return Err(ContextError::Malformed("a PATH with two contexts of one purpose"));
            }
        }
        Ok(())
    }
}

/// The second protocol name in ALPN: it makes both TLS signatures cover the whole frame `path`.
pub(crate) fn alpn(path: &[u8]) -> Vec<u8> {
    [label::PATH_ALPN.as_bytes(), &sha256(&[path])].concat()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A path over middleboxes with these keys; `rights[c]` are those of context c + 1.
    pub(crate) fn path(server: Identity, hops: &[Identity], rights: &[&[Right]]) -> Path {
        let party = |identity| Party { identity, address: "host.example:1".to_owned() };
        let contexts = rights.iter().map(|rights| Context {
            purpose: Purpose::Other,
            pad: 0,
            rights: rights.to_vec(),
        });
        Path {
            kem: Kem::X25519,
            server: party(server),
            hops: hops.iter().map(|key| Hop { party: party(*key), resume: None }).collect(),
            contexts: contexts.collect(),
        }
    }

    pub(crate) fn key(byte: u8) -> Identity {
        Identity::from_bytes([byte; 32])
    }

    #[test]
    fn a_path_round_trips_and_rights_are_found() {
        let row = [Right::None, Right::Read, Right::Write, Right::None, Right::Write];
        let hops: Vec<_> = (2..7).map(key).collect();
        let mut all = path(key(9), &hops, &[&row, &[Right::None; 5]]);
        all.hops[1].resume = Some([3; 16]);
        all.contexts[1].purpose = Purpose::ResponseBody;
        let frame = all.encode().unwrap();
        assert_eq!(Path::decode(&frame).unwrap(), all);
        assert_eq!(all.right(1, 5), Right::Write);
        assert_eq!(all.right(1, 2), Right::Read);
        assert_eq!([all.right(0, 1), all.right(3, 1), all.right(1, 6)], [Right::None; 3]);
        assert!(all.any(1, Right::Write) && !all.any(2, Right::Read));
        assert_eq!(all.context(Purpose::ResponseBody), Some(2));
    }
}
