//! One stream: messages that have come, and what each direction is up to.

use std::collections::VecDeque;

use crate::Class;
use crate::credit::{Credit, Window};

/// An inbox that ran empty gives back more memory than this: some deliveries of a busy link, so that
/// a reader that keeps up never makes the inbox move. Only a stream whose window grew can have more
/// than 256 KiB, and all windows together grow by a bounded amount.
const KEPT: usize = 1 << 20;

/// Messages received and not yet read.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: VecDeque<u8>,
    /// Where messages end, in bytes since the start of the stream.
    ends: VecDeque<u64>,
    read: u64,
    /// Whether bytes of a message have come whose end has not.
    partial: bool,
}

impl Inbox {
    /// Appends a part of a message, its last if `end`.
    pub(crate) fn push(&mut self, bytes: &[u8], end: bool) {
        self.bytes.extend(bytes);
        self.partial = !end && (self.partial || !bytes.is_empty());
        if end {
            self.ends.push_back(self.read + self.bytes.len() as u64);
        }
    }

    /// Moves bytes of the first message to `buf`: how many, and whether the message ends with them.
    /// None if there is nothing.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Option<(usize, bool)> {
        self.take(buf.len(), |first, second| {
            let (front, back) = buf.split_at_mut(first.len());
            front.copy_from_slice(first);
            back[..second.len()].copy_from_slice(second);
        })
    }

    /// As [`Self::read`], but appends at most `max` bytes to `buf`.
    pub(crate) fn read_to(&mut self, buf: &mut Vec<u8>, max: usize) -> Option<(usize, bool)> {
        self.take(max, |first, second| {
            buf.reserve(first.len() + second.len());
            buf.extend_from_slice(first);
            buf.extend_from_slice(second);
        })
    }

    /// Hands at most `max` bytes of the first message to `sink`, in two pieces.
    fn take(&mut self, max: usize, sink: impl FnOnce(&[u8], &[u8])) -> Option<(usize, bool)> {
        let end = self.ends.front().map(|end| (end - self.read) as usize);
        let ready = end.unwrap_or(self.bytes.len());
        if ready == 0 && end.is_none() {
            return None;
        }
        let len = ready.min(max);
        let (first, second) = self.bytes.as_slices();
        let split = len.min(first.len());
        sink(&first[..split], &second[..len - split]);
        self.bytes.drain(..len);
        self.read += len as u64;
        let ended = end == Some(len);
        if ended {
            self.ends.pop_front();
        }
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT {
            self.bytes.shrink_to(KEPT);
        }
        Some((len, ended))
    }

    /// Whether a message has begun to arrive and not ended.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial
    }

    /// Throws everything away.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What one direction of a stream is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Messages may follow.
    Open,
    /// No more messages.
    Finished,
    /// Aborted by either side, with this code.
    Reset(u64),
}

/// What a writer that was refused waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    No,
    /// Credit of its stream.
    Credit,
    /// Its turn: room in the output, or credit of the connection.
    Turn,
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) class: Class,
    /// Whether the peer opened it.
    pub(crate) by_peer: bool,
    /// Whether it counts as open on the wire: not both directions have ended.
    pub(crate) live: bool,
    pub(crate) sending: Direction,
    pub(crate) receiving: Direction,
    pub(crate) credit: Credit,
    pub(crate) window: Window,
    pub(crate) inbox: Inbox,
    /// Whether a message was begun and not ended.
    pub(crate) partial: bool,
    pub(crate) wait: Wait,
    /// Whether a Readable event is queued.
    pub(crate) readable: bool,
    /// Whether a WINDOW frame is due.
    pub(crate) window_due: bool,
    /// The round of transmission in which it last wanted to write, and what it wrote: bytes, and the
    /// cost of frames.
    pub(crate) turn: (u64, usize),
}

impl Stream {
    pub(crate) fn new(class: Class, by_peer: bool, credit: Credit, window: Window) -> Self {
        Self {
            class,
            by_peer,
            live: true,
            sending: Direction::Open,
            receiving: Direction::Open,
            credit,
            window,
            inbox: Inbox::default(),
            partial: false,
            wait: Wait::No,
            readable: false,
            window_due: false,
            turn: (0, 0),
        }
    }

    /// Whether both directions have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.sending != Direction::Open && self.receiving != Direction::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in() {
        bolero::check!().with_type::<(Vec<(Vec<u8>, bool)>, u8)>().for_each(|(parts, size)| {
            let mut inbox = Inbox::default();
            let mut buf = vec![0; usize::from(*size) + 1];
            let mut sent: Vec<Vec<u8>> = vec![vec![]];
            let mut got = sent.clone();
            for (bytes, end) in parts {
                inbox.push(bytes, *end);
                sent.last_mut().unwrap().extend(bytes);
                if *end {
                    sent.push(vec![]);
                }
                if bytes.len() % 3 == 0 {
                    drain(&mut inbox, &mut buf, &mut got);
                }
            }
            drain(&mut inbox, &mut buf, &mut got);
            assert_eq!(sent, got);
            assert_eq!(inbox.is_partial(), !sent.last().unwrap().is_empty());
        });
    }

    /// The most that a driver hands over between two turns of a reader.
    const DELIVERY: usize = 288 << 10;

    #[test]
    fn a_steady_inbox_stays_where_it_is_and_an_empty_one_is_small() {
        let mut inbox = Inbox::default();
        let mut buf = vec![0; 64 << 10];
        let mut cycle = |inbox: &mut Inbox, len: usize| {
            (0..len / 16_000).for_each(|_| inbox.push(&[0; 16_000], true));
            let full = inbox.bytes.capacity();
            drain(inbox, &mut buf, &mut vec![vec![]]);
            (full, inbox.bytes.capacity())
        };
        cycle(&mut inbox, 2 * DELIVERY);
        let steady = cycle(&mut inbox, DELIVERY);
        assert_eq!(steady.0, steady.1);
        for deliveries in [1, 2, 1, 1, 2] {
            assert_eq!(cycle(&mut inbox, deliveries * DELIVERY), steady);
        }
        assert!(cycle(&mut inbox, 8 << 20).1 <= KEPT);
    }

    fn drain(inbox: &mut Inbox, buf: &mut [u8], got: &mut Vec<Vec<u8>>) {
        loop {
            let last = got.last_mut().unwrap();
            let before = last.len();
            let Some((len, end)) = inbox.read_to(last, buf.len()) else { return };
            assert_eq!(last.len() - before, len);
            if end {
                got.push(vec![]);
            }
            let Some((len, end)) = inbox.read(buf) else { return };
            got.last_mut().unwrap().extend(&buf[..len]);
            if end {
                got.push(vec![]);
            }
        }
    }
}
