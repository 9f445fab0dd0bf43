//! Messages of the control stream, and the header of a chunk on the data stream.
//!
//! Numbers are big-endian. A message is its tag (1 byte) and its fields in order; runs begin with
//! their number (2 bytes), requests and addresses with theirs (1 byte). `docs/protocol.md`, "The
//! swarm", has the layouts.

use std::ops::Range;

use thiserror::Error;

use crate::PeerId;
use crate::content::ChunkHash;

/// The most runs of chunks in a message.
pub const MAX_RUNS: usize = 1024;
/// The most addresses of a peer.
pub const MAX_ADDRESSES: usize = 8;
/// The most chunks that a peer has requested and not received, in mediated mode.
pub const MAX_REQUESTS: usize = 32;
/// The longest address, in bytes.
const MAX_ADDRESS: usize = 255;
/// The longest message, in bytes.
pub const MAX_MESSAGE: usize = 16 * 1024;
/// The most siblings of a chunk: the levels of a tree over [`MAX_CHUNKS`](crate::MAX_CHUNKS).
pub const MAX_SIBLINGS: usize = 24;
/// The longest header of a chunk, in bytes.
pub const MAX_HEADER: usize = 9 + MAX_SIBLINGS * 32;

/// A message between two parties of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// These chunks are there now.
    Have(Vec<Range<u32>>),
    /// These chunks are missing again, although they were expected.
    Want(Vec<Range<u32>>),
    /// The sender would send this chunk now.
    Offer(u32),
    /// Send it, with the siblings of so many levels.
    Accept(u32, u8),
    /// Do not send it: it is there, or expected from another neighbour.
    Decline(u32),
    /// From the coordinator: exchange chunks with this peer, and connect to it if `dial`.
    Meet {
        /// The peer.
        peer: PeerId,
        /// Its identity, an Ed25519 public key.
        identity: [u8; 32],
        /// Where it listens, `host:port`.
        addresses: Vec<String>,
        /// Whether the receiver connects; otherwise the peer does, and the receiver only if that
        /// takes long.
        dial: bool,
    },
    /// From the coordinator: this peer is no longer a neighbour.
    Part(PeerId),
    /// From the coordinator: no party has these chunks any more.
    Lost(Vec<Range<u32>>),
    /// To the coordinator: where the sender listens. It is the first message of a peer.
    Listening(Vec<String>),
    /// To the coordinator: this peer could not be reached, or the connection to it was lost.
    Unreachable(PeerId),
    /// To the coordinator: this peer has sent a wrong chunk.
    Accuse(PeerId, u32),
    /// To a mediating coordinator: send these chunks, each with the siblings of so many levels.
    Request(Vec<(u32, u8)>),
    /// From a mediating coordinator: send it this chunk.
    Fetch(u32),
    /// From a mediating coordinator: where its scan is, and which requests it has dropped.
    Scan(u32, Vec<Range<u32>>),
    /// From a mediating coordinator: hold copies of these chunks. To it: these copies are there.
    Provide(Vec<Range<u32>>),
}

/// What precedes the bytes of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The chunk.
    pub index: u32,
    /// The peer whose copy it is.
    pub provider: PeerId,
    /// The siblings that the receiver has asked for, from below.
    pub siblings: Vec<ChunkHash>,
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a malformed message of the swarm")]
pub struct Malformed;

impl Message {
    /// The chunks that the message asks for.
    pub(crate) fn requests(&self) -> impl Iterator<Item = u32> + '_ {
        let (requests, accepted) = match self {
            Self::Request(requests) => (&requests[..], None),
            Self::Accept(index, _) => (&[][..], Some(*index)),
            _ => (&[][..], None),
        };
        requests.iter().map(|(index, _)| *index).chain(accepted)
    }

    /// The bytes of the message. Lists that are longer than allowed are cut; the caller divides
    /// them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        match self {
            Self::Have(runs) => put_runs(&mut out, 1, runs),
            Self::Want(runs) => put_runs(&mut out, 2, runs),
            Self::Offer(index) => put_index(&mut out, 3, *index),
            Self::Accept(index, levels) => {
                put_index(&mut out, 4, *index);
                out.push(*levels);
            }
            Self::Decline(index) => put_index(&mut out, 5, *index),
            Self::Meet { peer, identity, addresses, dial } => {
                put_index(&mut out, 6, peer.0);
                out.extend_from_slice(identity);
                out.push(u8::from(*dial));
                put_addresses(&mut out, addresses);
            }
            Self::Part(peer) => put_index(&mut out, 7, peer.0),
            Self::Lost(runs) => put_runs(&mut out, 8, runs),
            Self::Listening(addresses) => {
                out.push(9);
                put_addresses(&mut out, addresses);
            }
            Self::Unreachable(peer) => put_index(&mut out, 10, peer.0),
            Self::Accuse(peer, index) => {
                put_index(&mut out, 11, peer.0);
                out.extend_from_slice(&index.to_be_bytes());
            }
            Self::Request(requests) => put_requests(&mut out, 12, requests),
            Self::Fetch(index) => put_index(&mut out, 13, *index),
            Self::Scan(position, dropped) => {
                put_index(&mut out, 14, *position);
                put_list(&mut out, dropped);
            }
            Self::Provide(runs) => put_runs(&mut out, 15, runs),
        }
        out
    }

    /// Decodes one message.
    ///
    /// # Errors
    /// [`Malformed`] if it is longer than [`MAX_MESSAGE`] or not exactly one message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_MESSAGE {
            return Err(Malformed);
        }
        let mut reader = Reader(bytes);
        let message = match reader.byte()? {
            1 => Self::Have(reader.runs()?),
            2 => Self::Want(reader.runs()?),
            3 => Self::Offer(reader.number()?),
            4 => Self::Accept(reader.number()?, reader.byte()?),
            5 => Self::Decline(reader.number()?),
            6 => {
                let peer = PeerId(reader.number()?);
                let identity = reader.array()?;
                let dial = reader.flag()?;
                Self::Meet { peer, identity, addresses: reader.addresses()?, dial }
            }
            7 => Self::Part(PeerId(reader.number()?)),
            8 => Self::Lost(reader.runs()?),
            9 => Self::Listening(reader.addresses()?),
            10 => Self::Unreachable(PeerId(reader.number()?)),
            11 => Self::Accuse(PeerId(reader.number()?), reader.number()?),
            12 => Self::Request(reader.requests()?),
            13 => Self::Fetch(reader.number()?),
            14 => Self::Scan(reader.number()?, reader.runs()?),
            15 => Self::Provide(reader.runs()?),
            _ => return Err(Malformed),
        };
        reader.end(message)
    }
}

impl ChunkHeader {
    /// The bytes of the header; those of the chunk follow.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(9 + self.siblings.len() * 32);
        out.extend_from_slice(&self.index.to_be_bytes());
        out.extend_from_slice(&self.provider.0.to_be_bytes());
        out.push(self.siblings.len().min(MAX_SIBLINGS) as u8);
        out.extend(self.siblings.iter().take(MAX_SIBLINGS).flatten());
        out
    }

    /// Decodes the header of a chunk, and returns the chunk's bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut reader = Reader(bytes);
        let index = reader.number()?;
        let provider = PeerId(reader.number()?);
        let count = usize::from(reader.byte()?);
        if count > MAX_SIBLINGS {
            return Err(Malformed);
        }
        let siblings = (0..count).map(|_| reader.array()).collect::<Result<_, _>>()?;
        Ok((Self { index, provider, siblings }, reader.0))
    }
}

/// Sorted indices as runs.
pub fn runs_of(indices: &[u32]) -> Vec<Range<u32>> {
    let runs = indices.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    runs.map(|run| run[0]..run[run.len() - 1] + 1).collect()
}

fn put_index(out: &mut Vec<u8>, tag: u8, index: u32) {
    out.push(tag);
    out.extend_from_slice(&index.to_be_bytes());
}

fn put_runs(out: &mut Vec<u8>, tag: u8, runs: &[Range<u32>]) {
    out.push(tag);
    put_list(out, runs);
}

fn put_list(out: &mut Vec<u8>, runs: &[Range<u32>]) {
    let runs = &runs[..runs.len().min(MAX_RUNS)];
    out.extend_from_slice(&(runs.len() as u16).to_be_bytes());
    for run in runs {
        out.extend_from_slice(&run.start.to_be_bytes());
        out.extend_from_slice(&run.end.to_be_bytes());
    }
}

fn put_requests(out: &mut Vec<u8>, tag: u8, requests: &[(u32, u8)]) {
    out.push(tag);
    let requests = &requests[..requests.len().min(MAX_REQUESTS)];
    out.push(requests.len() as u8);
    for (index, levels) in requests {
        out.extend_from_slice(&index.to_be_bytes());
        out.push(*levels);
    }
}

fn put_addresses(out: &mut Vec<u8>, addresses: &[String]) {
    let short = addresses.iter().filter(|address| address.len() <= MAX_ADDRESS);
    let addresses: Vec<_> = short.take(MAX_ADDRESSES).collect();
    out.push(addresses.len() as u8);
    for address in addresses {
        out.push(address.len() as u8);
        out.extend_from_slice(address.as_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Runs in ascending order, none empty, none overlapping.
    fn runs(&mut self) -> Result<Vec<Range<u32>>, Malformed> {
        let count = usize::from(self.array().map(u16::from_be_bytes)?);
        if count > MAX_RUNS || count * 8 > self.0.len() {
            return Err(Malformed);
        }
        let mut from = 0;
        (0..count)
            .map(|_| {
                let run = self.number()?..self.number()?;
                let ordered = run.start >= from && run.start < run.end;
                from = run.end;
                ordered.then_some(run).ok_or(Malformed)
            })
            .collect()
    }

    fn requests(&mut self) -> Result<Vec<(u32, u8)>, Malformed> {
        let count = usize::from(self.byte()?);
        if count > MAX_REQUESTS {
            return Err(Malformed);
        }
        (0..count).map(|_| Ok((self.number()?, self.byte()?))).collect()
    }

    fn addresses(&mut self) -> Result<Vec<String>, Malformed> {
        let count = usize::from(self.byte()?);
        if count > MAX_ADDRESSES {
            return Err(Malformed);
        }
        (0..count)
            .map(|_| {
                let length = usize::from(self.byte()?);
                let (text, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
                self.0 = rest;
                let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
                let clean = !text.is_empty() && !text.contains(char::is_control);
                clean.then(|| text.to_owned()).ok_or(Malformed)
            })
            .collect()
    }

    fn end<T>(self, value: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_encoding() {
        let addresses = vec!["127.0.0.1:5382".to_owned(), "[::1]:1".to_owned()];
        let all = [
            Message::Have(vec![0..1, 5..9]),
            Message::Want(vec![]),
            Message::Offer(7),
            Message::Accept(7, 3),
            Message::Decline(u32::MAX),
            Message::Meet {
                peer: PeerId(3),
                identity: [9; 32],
                addresses: addresses.clone(),
                dial: true,
            },
            Message::Part(PeerId(1)),
            Message::Lost(vec![1..2, 4..6]),
            Message::Listening(addresses),
            Message::Unreachable(PeerId(2)),
            Message::Accuse(PeerId(2), 8),
            Message::Request(vec![(7, 3), (2, 0)]),
            Message::Fetch(7),
            Message::Scan(9, vec![1..2, 4..6]),
            Message::Provide(vec![0..3, 7..9]),
        ];
        for message in all {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Ok(message));
            assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), Err(Malformed));
            assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), Err(Malformed));
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(message) = Message::decode(bytes) {
                assert_eq!(message.encode(), bytes);
            }
            if let Ok((header, rest)) = ChunkHeader::decode(bytes) {
                assert_eq!([header.encode(), rest.to_vec()].concat(), bytes);
            }
        });
    }

    #[test]
    fn refuses_more_requests_than_a_window() {
        let mut bytes = Message::Request(vec![(1, 0); MAX_REQUESTS]).encode();
        assert!(Message::decode(&bytes).is_ok());
        bytes[1] += 1;
        bytes.extend_from_slice(&[0; 5]);
        assert_eq!(Message::decode(&bytes), Err(Malformed));
    }

    #[test]
    fn runs_are_ordered() {
        assert_eq!(runs_of(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
        assert!(runs_of(&[]).is_empty());
        for [start, end] in [[3, 3], [4, 2]] {
            let message = Message::Have(vec![0..1, Range { start, end }]);
            assert_eq!(Message::decode(&message.encode()), Err(Malformed));
        }
        for runs in [vec![1..5, 4..6], vec![5..6, 1..2]] {
            assert_eq!(Message::decode(&Message::Have(runs).encode()), Err(Malformed));
        }
    }
}
