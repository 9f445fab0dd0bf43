//! PATH: the server, the middleboxes, the contexts, and who may do what (`docs/protocol.md`, "PATH").

use levada_core::{Identity, label, sha256};

use super::ContextError;
use super::frame::{self, Fields};
use crate::record::HEADER;

/// The most middleboxes of a path.
pub const MAX_MIDDLEBOXES: usize = 16;
/// The most contexts of a path, besides context 0.
pub const MAX_CONTEXTS: usize = 64;
/// The longest PATH, header included, in bytes.
const MAX_PATH: usize = 8 * 1024;
/// The version of the protocol.
const VERSION: u8 = 1;

/// The key encapsulation by which the server sends each middlebox its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kem {
    /// HPKE with X25519 (RFC 9180). What middleboxes may read is not safe from a later quantum computer.
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

    /// The whole frame.
    ///
    /// # Errors
    /// [`ContextError::Malformed`] if it breaks a rule of the protocol: [`Self::decode`] has the list.
    pub fn encode(&self) -> Result<Vec<u8>, ContextError> {
        let mut body = vec![VERSION, self.kem as u8];
        put_party(&mut body, &self.server.identity, None, &self.server.address)?;
        body.push(small(self.hops.len())?);
        for hop in &self.hops {
            let resume = Some(hop.resume.unwrap_or_default());
            put_party(&mut body, &hop.party.identity, resume, &hop.party.address)?;
        }
        body.push(small(self.contexts.len())?);
        for context in &self.contexts {
            body.extend_from_slice(&[context.purpose as u8, context.pad]);
        }
        for context in &self.contexts {
            let mut row = vec![0; self.hops.len().div_ceil(4)];
            for (hop, right) in context.rights.iter().enumerate() {
                *row.get_mut(hop / 4).ok_or(INVALID)? |= (*right as u8) << (hop % 4 * 2);
            }
            body.extend_from_slice(&row);
        }
        let mut frame = Vec::new();
        frame::put(&mut frame, frame::PATH, &[&body]);
        // One set of rules: what cannot be decoded is not sent.
        if Self::decode(&frame)? == *self { Ok(frame) } else { Err(INVALID) }
    }

    /// Decodes a whole frame.
    ///
    /// # Errors
    /// [`ContextError::Malformed`] for another form or version, no middlebox or more than [`MAX_MIDDLEBOXES`], no context or more than
    /// [`MAX_CONTEXTS`], a key twice or one that no honest party has, an address that is none, a purpose of 1 to 4 twice, or an
    /// unknown right.
    pub fn decode(frame: &[u8]) -> Result<Self, ContextError> {
        if frame.len() > MAX_PATH || frame.first() != Some(&frame::PATH) {
            return Err(INVALID);
        }
        let mut fields = Fields::new(frame.get(HEADER..).ok_or(INVALID)?, "a PATH");
        if fields.byte()? != VERSION {
            return Err(ContextError::Malformed("a PATH of another version"));
        }
        let kem = match fields.byte()? {
            1 => Kem::X25519,
            2 => Kem::Hybrid,
            _ => return Err(INVALID),
        };
        let server = take_party(&mut fields, None)?;
        let mut hops = Vec::new();
        for _ in 0..count(fields.byte()?, MAX_MIDDLEBOXES)? {
            let mut resume = ResumeId::default();
            let party = take_party(&mut fields, Some(&mut resume))?;
            hops.push(Hop { party, resume: (resume != [0; 16]).then_some(resume) });
        }
        let contexts = take_contexts(&mut fields, hops.len())?;
        fields.end()?;
        let path = Self { kem, server, hops, contexts };
        path.check()?;
        Ok(path)
    }

    fn check(&self) -> Result<(), ContextError> {
        let mut keys = vec![self.server.identity];
        keys.extend(self.hops.iter().map(|hop| hop.party.identity));
        for (at, key) in keys.iter().enumerate() {
            if keys[..at].contains(key) || !is_usable(key) {
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

const INVALID: ContextError = ContextError::Malformed("a PATH");

/// The second protocol name in ALPN: it makes both TLS signatures cover the whole frame `path`.
pub(crate) fn alpn(path: &[u8]) -> Vec<u8> {
    [label::PATH_ALPN.as_bytes(), &sha256(&[path])].concat()
}

fn small(count: usize) -> Result<u8, ContextError> {
    u8::try_from(count).map_err(|_| INVALID)
}

fn count(count: u8, most: usize) -> Result<usize, ContextError> {
    let count = usize::from(count);
    if (1..=most).contains(&count) { Ok(count) } else { Err(INVALID) }
}

fn put_party(
    body: &mut Vec<u8>,
    identity: &Identity,
    resume: Option<ResumeId>,
    address: &str,
) -> Result<(), ContextError> {
    body.extend_from_slice(identity.as_bytes());
    body.extend(resume.into_iter().flatten());
    body.push(small(address.len())?);
    body.extend_from_slice(address.as_bytes());
    Ok(())
}

fn take_party(
    fields: &mut Fields<'_>,
    resume: Option<&mut ResumeId>,
) -> Result<Party, ContextError> {
    let identity = Identity::from_bytes(fields.array()?);
    if let Some(resume) = resume {
        *resume = fields.array()?;
    }
    let length = fields.byte()?;
    let address = std::str::from_utf8(fields.bytes(length.into())?).map_err(|_| INVALID)?;
    let (host, port) = address.rsplit_once(':').ok_or(INVALID)?;
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(INVALID);
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse::<u16>().ok().filter(|_| digits).ok_or(INVALID)?;
    Ok(Party { identity, address: address.to_owned() })
}

fn take_contexts(fields: &mut Fields<'_>, hops: usize) -> Result<Vec<Context>, ContextError> {
    let number = count(fields.byte()?, MAX_CONTEXTS)?;
    let mut contexts = Vec::with_capacity(number);
    for _ in 0..number {
        let [purpose, pad] = fields.array()?;
        let purpose = match purpose {
            0 => Purpose::Other,
            1 => Purpose::RequestHead,
            2 => Purpose::RequestBody,
            3 => Purpose::ResponseHead,
            4 => Purpose::ResponseBody,
            5 => Purpose::Fields,
            6 => Purpose::Trailers,
            _ => return Err(INVALID),
        };
        contexts.push(Context { purpose, pad, rights: Vec::new() });
    }
    for context in &mut contexts {
        context.rights = take_row(fields.bytes(hops.div_ceil(4))?, hops)?;
    }
    Ok(contexts)
}

fn take_row(row: &[u8], hops: usize) -> Result<Vec<Right>, ContextError> {
    let cells = row.iter().flat_map(|byte| [0, 2, 4, 6].map(|shift| byte >> shift & 3));
    let mut rights = Vec::with_capacity(hops);
    for (hop, cell) in cells.enumerate() {
        match cell {
            0 if hop >= hops => {}
            _ if hop >= hops => return Err(INVALID),
            0 => rights.push(Right::None),
            1 => rights.push(Right::Read),
            2 => rights.push(Right::Write),
            _ => return Err(INVALID),
        }
    }
    Ok(rights)
}

/// Whether an honest party can have this key: a canonical encoding (RFC 8032 section 5.1.3), and not one of the eight points of small
/// order, under which a signature can verify that no secret key made.
fn is_usable(identity: &Identity) -> bool {
    const ORDER_8: [[u8; 32]; 2] = [
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10,
            0x67, 0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77,
            0x92, 0xac, 0x03, 0x7a,
        ],
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef,
            0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88,
            0x6d, 0x53, 0xfc, 0x05,
        ],
    ];
    let mut y = *identity.as_bytes();
    y[31] &= 0x7f;
    let middle_full = y[1..31].iter().all(|byte| *byte == 0xff) && y[31] == 0x7f;
    // p is 2^255 - 19: from 0xed on, the encoding is not canonical; 0xec is p - 1, of order 2.
    let near_p = middle_full && y[0] >= 0xec;
    let tiny = y[1..].iter().all(|byte| *byte == 0) && y[0] <= 1;
    !near_p && !tiny && !ORDER_8.contains(&y)
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

    fn key(byte: u8) -> Identity {
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

    #[test]
    fn a_path_that_breaks_a_rule_is_neither_sent_nor_accepted() {
        let good = path(key(9), &[key(2)], &[&[Right::Read]]);
        let broken = |change: &dyn Fn(&mut Path)| {
            let mut path = good.clone();
            change(&mut path);
            assert!(path.encode().is_err(), "{path:?}");
        };
        broken(&|path| path.hops.clear());
        broken(&|path| path.contexts.clear());
        broken(&|path| path.hops = vec![path.hops[0].clone(); 2]);
        broken(&|path| path.hops[0].party.identity = key(9));
        broken(&|path| path.hops[0].party.identity = key(0));
        broken(&|path| path.server.identity = key(0xff));
        broken(&|path| path.server.address = "host".to_owned());
        broken(&|path| path.server.address = "host:70000".to_owned());
        broken(&|path| path.server.address = "ho st:1".to_owned());
        broken(&|path| path.contexts[0].rights.clear());
        broken(&|path| {
            path.contexts[0].purpose = Purpose::RequestHead;
            path.contexts.push(path.contexts[0].clone());
        });
        let frame = good.encode().unwrap();
        // A right of 3, and a bit of a hop that does not exist.
        for bits in [3, 4] {
            let mut frame = frame.clone();
            *frame.last_mut().unwrap() = bits;
            assert!(Path::decode(&frame).is_err());
        }
    }

    #[test]
    fn points_of_small_order_and_other_encodings_are_no_keys() {
        let mut order_two = [0xff; 32];
        order_two[0] = 0xec;
        order_two[31] = 0x7f;
        let mut other = order_two;
        other[0] = 0xf1;
        let one = {
            let mut bytes = [0; 32];
            (bytes[0], bytes[31]) = (1, 0x80);
            bytes
        };
        for bytes in [order_two, other, one, [0; 32]] {
            assert!(!is_usable(&Identity::from_bytes(bytes)));
        }
        assert!(is_usable(&key(7)));
    }

    #[test]
    fn arbitrary_bytes_are_decoded_to_what_encodes_to_them() {
        let good = path(key(9), &[key(2), key(3)], &[&[Right::Read, Right::Write]]);
        let frame = good.encode().unwrap();
        bolero::check!().with_type::<(Vec<u8>, u16, u8)>().for_each(|(bytes, at, value)| {
            let mut changed = frame.clone();
            let at = usize::from(*at) % changed.len();
            changed[at] = *value;
            for input in [bytes, &changed] {
                if let Ok(path) = Path::decode(input) {
                    assert_eq!(&path.encode().unwrap()[5..], &input[5..]);
                }
            }
        });
    }
}
