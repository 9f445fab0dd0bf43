//! One record of a context: its header, its place, sealing and opening (`docs/protocol.md`,
//! "Records of contexts").

mod cipher;

use std::ops::Range;

use levada_core::Digest;

use super::ContextError;
use super::frame;
use super::path::{Path, Right};
use super::schedule::TagKey;
pub(crate) use cipher::{Cipher, Meta};
use levada_channel::parts::{HEADER, TAG};

/// The longest plaintext, padding included, in bytes.
pub(crate) const MAX_PLAIN: usize = 16_384;
/// The most data of a record whose context is not padded, in bytes.
pub(crate) const MAX_DATA: usize = MAX_PLAIN - 1;
const SLOT: u8 = 0x80;
const MARK: u8 = 0x40;
const END: u8 = 0x20;
const ORIGIN: u8 = 0x1f;

/// The first three bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) context: u8,
    /// Consumes a slot of its context: every record of an endpoint, and what takes its place.
    pub(crate) slot: bool,
    /// An audit follows.
    pub(crate) mark: bool,
    /// The last record of a message.
    pub(crate) end: bool,
    /// 0 the sending endpoint, otherwise a middlebox.
    pub(crate) origin: u8,
}

impl Head {
    pub(crate) fn of(whole: &[u8]) -> Result<Self, ContextError> {
        let &[_, context, flags, ..] =
            whole.first_chunk::<HEADER>().ok_or(ContextError::Malformed("a short record"))?;
        Ok(Self {
            context,
            slot: flags & SLOT != 0,
            mark: flags & MARK != 0,
            end: flags & END != 0,
            origin: flags & ORIGIN,
        })
    }

    fn header(self, body: usize) -> [u8; HEADER] {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags =
            flag(self.slot, SLOT) | flag(self.mark, MARK) | flag(self.end, END) | self.origin;
        let [high, low] = u16::try_from(body).unwrap_or(u16::MAX).to_be_bytes();
        [frame::RECORD, self.context, flags, high, low]
    }
}

/// Which tags the records of a context have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// A middlebox may write here.
    pub(crate) writer: bool,
    /// A middlebox has any right here.
    pub(crate) third: bool,
    /// Plaintexts are filled to a multiple of this.
    pub(crate) pad: usize,
}

impl Layout {
    pub(crate) fn new(path: &Path, context: u8) -> Self {
        let at = usize::from(context).checked_sub(1);
        let pad = at.and_then(|at| path.contexts.get(at)).map_or(1, |context| context.pad.max(1));
        Self {
            writer: path.any(context, Right::Write),
            third: path.any(context, Right::Read),
            pad: pad.into(),
        }
    }

    /// The most data of a record, in bytes.
    pub(crate) fn capacity(self) -> usize {
        self.capacity_of(MAX_PLAIN)
    }

    /// The same with a shorter plaintext, of at least 255 bytes.
    pub(crate) fn capacity_of(self, plain: usize) -> usize {
        plain / self.pad * self.pad - 1
    }

    fn tags(self) -> usize {
        TAG * (1 + usize::from(self.writer) + usize::from(self.third))
    }
}

/// The counters before a record: of slots in its context, of slots in all, and of its origin's own
/// records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    pub(crate) n: u64,
    pub(crate) g: u64,
    pub(crate) q: u64,
}

fn meta(header: [u8; HEADER], place: Position) -> Meta {
    let mut meta = [0; HEADER + 24];
    meta[..HEADER].copy_from_slice(&header);
    for (at, counter) in [place.n, place.g, place.q].into_iter().enumerate() {
        meta[HEADER + 8 * at..][..8].copy_from_slice(&counter.to_be_bytes());
    }
    meta
}

/// Where the parts of a whole record are.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) head: Head,
    pub(crate) meta: Meta,
    /// The origin's own counter; 0 for an endpoint.
    pub(crate) q: u64,
    /// Ciphertext and its tag.
    sealed: Range<usize>,
    writer: Option<Range<usize>>,
    third: Option<Range<usize>>,
}

impl View {
    /// The parts of `whole`, which has place `n`, `g`.
    pub(crate) fn new(whole: &[u8], layout: Layout, n: u64, g: u64) -> Result<Self, ContextError> {
        let head = Head::of(whole)?;
        let header = *whole.first_chunk().ok_or(TOO_SHORT)?;
        let counter = if head.origin == 0 { 0 } else { 8 };
        let start = HEADER + counter;
        let end = whole.len().checked_sub(layout.tags() - TAG).ok_or(TOO_SHORT)?;
        if end < start + TAG + 1 || end - start > MAX_PLAIN + TAG {
            return Err(TOO_SHORT);
        }
        let q = match counter {
            0 => 0,
            _ => u64::from_be_bytes(*whole[HEADER..].first_chunk().ok_or(TOO_SHORT)?),
        };
        let writer = layout.writer.then_some(end..end + TAG);
        let third = layout.third.then_some(whole.len() - TAG..whole.len());
        let meta = meta(header, Position { n, g, q });
        Ok(Self { head, meta, q, sealed: start..end, writer, third })
    }

    /// Whether the record has a tag over the hash of its plaintext.
    pub(crate) fn has_tags(&self) -> bool {
        self.third.is_some()
    }

    /// The message of the writer tag and of the third tag: Meta ‖ the hash of the plaintext.
    pub(crate) fn tagged(&self, hash: &Digest) -> [u8; HEADER + 24 + 32] {
        tagged(&self.meta, hash)
    }

    pub(crate) fn writer_tag<'a>(&self, whole: &'a [u8]) -> Option<&'a [u8]> {
        whole.get(self.writer.clone()?)
    }

    pub(crate) fn third_tag<'a>(&self, whole: &'a [u8]) -> Option<&'a [u8]> {
        whole.get(self.third.clone()?)
    }

    /// All tags of the record as they stand in it.
    pub(crate) fn tags<'a>(&self, whole: &'a [u8]) -> &'a [u8] {
        whole.get(self.sealed.end - TAG..).unwrap_or_default()
    }

    /// Decrypts in place: where the data is, and the hash of the plaintext, if it is wanted (a
    /// fifth of the time of a long record).
    pub(crate) fn open(
        &self,
        (cipher, hashed): (&mut Cipher, bool),
        n: u64,
        pad: usize,
        whole: &mut [u8],
    ) -> Result<(Range<usize>, Option<Digest>), ContextError> {
        let Head { context, origin, .. } = self.head;
        let forged =
            ContextError::Forged { what: "a record", hop: Some(origin), context: Some(context) };
        let counter = if origin == 0 { n } else { self.q };
        let sealed = whole.get_mut(self.sealed.clone()).ok_or(TOO_SHORT)?;
        let plain = cipher.open(n, origin, counter, &self.meta, sealed)?.ok_or(forged)?;
        let hash = hashed.then(|| *blake3::hash(plain).as_bytes());
        let end = plain.iter().rposition(|byte| *byte != 0);
        let whole_pads = plain.len() % pad == 0;
        let end = end.filter(|at| plain[*at] == 0x80 && whole_pads);
        let end = end.ok_or(ContextError::Malformed("the padding of a record"))?;
        Ok((self.sealed.start..self.sealed.start + end, hash))
    }
}

const TOO_SHORT: ContextError = ContextError::Malformed("a record of a wrong length");

fn tagged(meta: &Meta, hash: &Digest) -> [u8; HEADER + 24 + 32] {
    let mut message = [0; HEADER + 24 + 32];
    message[..HEADER + 24].copy_from_slice(meta);
    message[HEADER + 24..].copy_from_slice(hash);
    message
}

/// What a record was sealed to.
pub(crate) struct Written {
    pub(crate) meta: Meta,
    /// The hash of the plaintext.
    pub(crate) hash: Digest,
    /// Where its tags stand in the output.
    pub(crate) tags: Range<usize>,
}

/// The keys under which a party seals.
pub(crate) struct SealKeys<'a> {
    pub(crate) cipher: &'a mut Cipher,
    pub(crate) writer: Option<&'a TagKey>,
    pub(crate) third: Option<&'a TagKey>,
}

/// Seals `data` and appends the whole record to `out`.
pub(crate) fn seal(
    keys: SealKeys<'_>,
    (head, place, layout): (Head, Position, Layout),
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<Written, ContextError> {
    let plain = (data.len() + 1).next_multiple_of(layout.pad);
    if plain > MAX_PLAIN {
        return Err(ContextError::State("more data than a record may have"));
    }
    let counter: &[u8] = if head.origin == 0 { &[] } else { &place.q.to_be_bytes() };
    let header = head.header(counter.len() + plain + layout.tags());
    let meta = meta(header, place);
    out.extend_from_slice(&header);
    out.extend_from_slice(counter);
    let start = out.len();
    out.extend_from_slice(data);
    out.push(0x80);
    out.resize(start + plain, 0);
    // Only tags and endorsements cover it: no middlebox reads a context without tags.
    let hash = match layout.third {
        true => *blake3::hash(&out[start..]).as_bytes(),
        false => Digest::default(),
    };
    let nonce = if head.origin == 0 { place.n } else { place.q };
    let tag = keys.cipher.seal(place.n, head.origin, nonce, &meta, &mut out[start..])?;
    let tags = out.len();
    out.extend_from_slice(&tag);
    let message = tagged(&meta, &hash);
    for key in [keys.writer.filter(|_| layout.writer), keys.third.filter(|_| layout.third)] {
        out.extend(key.map(|key| key.tag(&message)).iter().flatten());
    }
    Ok(Written { meta, hash, tags: tags..out.len() })
}
