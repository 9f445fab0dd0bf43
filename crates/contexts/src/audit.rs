//! Digests of what passed, and audits that compare them (`docs/protocol.md`, "Audits").

use levada_core::{Digest, sha256};

use super::ContextError;
use super::frame::{self, Fields};
use super::path::{Path, Right};
use super::record::{Head, View};
use super::schedule::{Direction, Secret, Tag};

/// An audit comes at least every this many records, so that little waits for one at the receiver.
pub(crate) const AUDIT_EVERY: u32 = 16;

/// Half a digest, as audits carry it.
pub(crate) type Half = [u8; 16];

/// What an audit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A part of an exchange, or what belongs to none.
    Part = 0,
    /// An exchange.
    Exchange = 1,
    /// A middlebox's own answer.
    OwnAnswer = 2,
    /// A part of it.
    OwnPart = 3,
}

impl Kind {
    /// A middlebox's own answer, or a part of it.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Self::OwnAnswer | Self::OwnPart)
    }
}

/// Whose audit is next.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    Party(u8),
    /// The author of an own answer: the last writer of its record, or a middlebox behind that one.
    AuthorFrom(u8),
}

impl Next {
    /// After a record with a MARK.
    pub(crate) fn after(head: Head) -> Self {
        if head.slot { Self::Party(0) } else { Self::AuthorFrom(head.origin) }
    }

    /// Whether the first audit, or a later one, may be of this party and kind.
    pub(crate) fn fits(self, hop: u8, kind: Kind) -> bool {
        match self {
            Self::Party(next) => hop == next,
            Self::AuthorFrom(least) => hop >= least && kind.is_own(),
        }
    }
}

/// The digests of one direction, by context.
#[derive(Clone, Debug)]
pub(crate) struct Digests(Vec<Digest>);

impl Digests {
    pub(crate) fn new(path: &Path) -> Self {
        Self(vec![Digest::default(); path.contexts.len() + 1])
    }

    /// D ← H(D ‖ header ‖ q ‖ tags).
    pub(crate) fn add(&mut self, context: u8, header: &[u8], q: u64, tags: &[u8]) {
        if let Some(digest) = self.0.get_mut(usize::from(context)) {
            *digest = sha256(&[digest, header, &q.to_be_bytes(), tags]);
        }
    }

    pub(crate) fn add_view(&mut self, view: &View, whole: &[u8]) {
        self.add(view.head.context, &view.meta[..5], view.q, view.tags(whole));
    }

    pub(crate) fn reset(&mut self) {
        self.0.fill(Digest::default());
    }

    pub(crate) fn halves(&self) -> Vec<Half> {
        self.0.iter().map(half).collect()
    }
}

fn half(digest: &Digest) -> Half {
    let mut half = Half::default();
    half.copy_from_slice(&digest[..16]);
    half
}

/// F: the hash over c ‖ D_c of the contexts that are not listed and had a record, cut to 16 bytes.
fn rest(digests: &[Half], listed: &[Changed]) -> Half {
    let mut bytes = Vec::new();
    for (context, digest) in (0u8..).zip(digests) {
        if *digest != Half::default() && !listed.iter().any(|one| one.context == context) {
            bytes.push(context);
            bytes.extend_from_slice(digest);
        }
    }
    half(&sha256(&[&bytes]))
}

/// A context that a middlebox changed: its digest as it arrived and as it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Changed {
    context: u8,
    arrived: Half,
    left: Half,
}

/// Counters that an audit's tag covers: the party's earlier audits, its slots, and exchanges or the
/// request that is answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) audits: u64,
    pub(crate) slots: u64,
    pub(crate) exchange: u64,
}

impl Counters {
    fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (at, counter) in [self.audits, self.slots, self.exchange].into_iter().enumerate() {
            bytes[8 * at..][..8].copy_from_slice(&counter.to_be_bytes());
        }
        bytes
    }
}

/// Appends AUDIT_i. `endorsements` follow the tag; only the server's for an exchange has them.
pub(crate) fn put(
    out: &mut Vec<u8>,
    (hop, kind): (u8, Kind),
    (arrived, left): (&Digests, &Digests),
    (key, counters): (&Secret, Counters),
    endorsements: &[Tag],
) {
    let arrived = arrived.halves();
    let left = left.halves();
    let pairs = (0u8..).zip(arrived.iter().zip(&left)).filter(|(_, (one, other))| one != other);
    let changed: Vec<Changed> = pairs
        .map(|(context, (arrived, left))| Changed { context, arrived: *arrived, left: *left })
        .collect();
    let mut body = vec![hop, kind as u8];
    body.extend_from_slice(&rest(&left, &changed));
    for one in &changed {
        body.push(one.context);
        body.extend_from_slice(&one.arrived);
        body.extend_from_slice(&one.left);
    }
    let tag = key.tag(&[&counters.bytes(), &body]);
    body.extend_from_slice(&tag);
    body.extend(endorsements.iter().flatten());
    frame::put(out, frame::AUDIT, &[&body]);
}

/// A received AUDIT.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    pub(crate) hop: u8,
    pub(crate) kind: Kind,
    rest: Half,
    changed: Vec<Changed>,
    tag: Tag,
    /// One for each hop, or none.
    pub(crate) endorsements: Vec<Tag>,
    /// What the tag is over, besides the counters.
    covered: Vec<u8>,
}

impl Audit {
    /// From a frame's body, on a path of `hops` middleboxes.
    pub(crate) fn take(
        body: &[u8],
        direction: Direction,
        hops: usize,
    ) -> Result<Self, ContextError> {
        const WHAT: &str = "an AUDIT";
        let mut fields = Fields::new(body, WHAT);
        let [hop, kind] = fields.array()?;
        let kind = match (kind, direction) {
            (0, _) => Kind::Part,
            (1, _) => Kind::Exchange,
            (2, Direction::ToClient) => Kind::OwnAnswer,
            (3, Direction::ToClient) => Kind::OwnPart,
            _ => return Err(ContextError::Malformed(WHAT)),
        };
        let endorsed = hop == 0 && kind == Kind::Exchange && direction == Direction::ToClient;
        let endorsed = if endorsed { hops } else { 0 };
        let rest = fields.array()?;
        let pairs = body.len().checked_sub(2 + 16 + 16 + 16 * endorsed);
        let pairs = pairs.filter(|bytes| bytes % 33 == 0).ok_or(ContextError::Malformed(WHAT))?;
        let mut changed = Vec::<Changed>::new();
        for _ in 0..pairs / 33 {
            let context = fields.byte()?;
            if changed.last().is_some_and(|last| last.context >= context) {
                return Err(ContextError::Malformed(WHAT));
            }
            changed.push(Changed { context, arrived: fields.array()?, left: fields.array()? });
        }
        let covered = body[..2 + 16 + pairs].to_vec();
        let tag = fields.array()?;
        let mut endorsements = Vec::with_capacity(endorsed);
        for _ in 0..endorsed {
            endorsements.push(fields.array()?);
        }
        fields.end()?;
        Ok(Self { hop, kind, rest, changed, tag, endorsements, covered })
    }

    /// Whether it may stand behind an audit of kind `first` in the same row. The first of a row is
    /// an endpoint's, or opens a middlebox's own answer.
    pub(crate) fn fits_row(&self, first: Option<Kind>) -> bool {
        first.map_or((self.hop == 0) != self.kind.is_own(), |first| first == self.kind)
    }

    /// The party whose audit follows this one on a path of `hops` middleboxes.
    pub(crate) fn next_party(&self, direction: Direction, hops: u8) -> u8 {
        match (direction, self.hop) {
            (Direction::ToServer, hop) => hop + 1,
            (Direction::ToClient, 0) => hops,
            (Direction::ToClient, hop) => hop - 1,
        }
    }

    pub(crate) fn verify(&self, key: &Secret, counters: Counters) -> Result<(), ContextError> {
        if key.verify(&[&counters.bytes(), &self.covered], &self.tag) {
            Ok(())
        } else {
            Err(ContextError::forged_by("an AUDIT", self.hop))
        }
    }
}

/// Walks back from the party next to the receiver to the sender: what each says has left it must be
/// what arrived behind it.
///
/// # Errors
/// [`ContextError::Audit`] names the first party whose audit does not fit;
/// [`ContextError::NoRight`] if one changed what it must not.
pub(crate) fn walk(path: &Path, own: &Digests, audits: &[Audit]) -> Result<(), ContextError> {
    let mut digests = own.halves();
    for audit in audits.iter().rev() {
        for one in &audit.changed {
            let hop = audit.hop;
            let context = one.context;
            if path.right(context, hop) != Right::Write {
                return Err(ContextError::NoRight { hop, context, what: "change records" });
            }
            if digests.get(usize::from(context)) != Some(&one.left) {
                return Err(ContextError::Audit(hop));
            }
        }
        if rest(&digests, &audit.changed) != audit.rest {
            return Err(ContextError::Audit(audit.hop));
        }
        for one in &audit.changed {
            digests[usize::from(one.context)] = one.arrived;
        }
    }
    Ok(())
}

/// The tag by which the server proves to one middlebox that it gave this answer to this request.
pub(crate) fn endorsement(
    key: &Secret,
    counters: Counters,
    request: &Digest,
    answer: &Digest,
) -> Tag {
    key.tag(&[&counters.bytes(), request, answer])
}

/// Whether `tag` is the [`endorsement`] of a request and its answer.
pub(crate) fn endorses(
    key: &Secret,
    counters: Counters,
    (request, answer): (&Digest, &Digest),
    tag: &Tag,
) -> bool {
    key.verify(&[&counters.bytes(), request, answer], tag)
}
