//! What a middlebox seals itself: records in the place of others, and answers of its own.

use super::Flow;
use crate::ContextError;
use crate::audit::Kind;
use crate::inspector::AnswerPart;
use crate::record::{self, Head, Position, SealKeys};
use crate::schedule::Direction;

/// Records of an own answer between two audits.
const PIECE: usize = 16;

impl Flow {
    /// Seals `data` in the place of a record. What outgrows it goes before it, in records without a
    /// slot, so that END and MARK stay where they are.
    pub(super) fn put(
        &mut self,
        head: Head,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ContextError> {
        let all_slots = self.contexts.slots;
        let context = &mut self.contexts[head.context];
        let what = "write a record";
        let denied = ContextError::NoRight { hop: self.number, context: head.context, what };
        let layout = context.layout;
        let slots = context.slots;
        let keys = context.keys.derive(&self.secrets, head.context, self.direction);
        let Some(keys) = keys else { return Err(denied) };
        if keys.author.is_none() {
            return Err(denied);
        }
        let capacity = layout.capacity();
        let pieces = data.chunks(capacity).collect::<Vec<_>>();
        let (last, before) =
            pieces.split_last().map_or((&[][..], &[][..]), |(last, all)| (*last, all));
        let inserted = Head { slot: false, mark: false, end: false, origin: self.number, ..head };
        let own = Head { origin: self.number, ..head };
        let mut noted = Vec::new();
        let all = before.iter().map(|piece| (inserted, *piece)).chain([(own, last)]);
        for (head, piece) in all {
            let q = self.own.take(head.slot)?;
            let place = Position { n: slots, g: all_slots, q };
            let seal = SealKeys {
                cipher: &mut keys.seal,
                writer: keys.writer.as_ref(),
                third: keys.author.as_ref(),
            };
            let written = record::seal(seal, (head, place, layout), piece, out)?;
            let tags = &out[written.tags];
            self.audits.left.add(head.context, &written.meta[..5], q, tags);
            noted.push((head, written.meta, written.hash, piece.len()));
        }
        for (head, meta, hash, length) in noted {
            if self.direction == Direction::ToServer {
                self.note(head, &meta, &hash, length);
            }
        }
        Ok(())
    }

    /// Sends a part of an own answer to the lowest request without one. Whatever comes from behind
    /// is behind it, too.
    pub(crate) fn answer(
        &mut self,
        part: &AnswerPart,
        out: &mut Vec<u8>,
    ) -> Result<(), ContextError> {
        let layout = self.contexts.get(part.context).map(|context| context.layout);
        let layout = layout.ok_or(ContextError::State("there is no such context"))?;
        let mut pieces = part.data.chunks(layout.capacity()).peekable();
        if part.last && pieces.peek().is_none() {
            return Err(ContextError::State("an answer whose last part is empty"));
        }
        let mut since_mark = self.exchanges.answering.unwrap_or(0);
        while let Some(piece) = pieces.next() {
            let last = part.last && pieces.peek().is_none();
            since_mark += 1;
            let mark = last || since_mark == PIECE;
            let context = part.context;
            let origin = self.number;
            let head = Head { context, slot: false, mark, end: false, origin };
            self.put(head, piece, out)?;
            if mark {
                self.put_audit(if last { Kind::OwnAnswer } else { Kind::OwnPart }, out);
                since_mark = 0;
            }
        }
        self.exchanges.answering = Some(since_mark);
        if part.last {
            self.exchanges.end_own_answer();
        }
        Ok(())
    }
}
