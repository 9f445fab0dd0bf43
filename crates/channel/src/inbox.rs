//! Messages that have come and were not read yet.

use std::collections::VecDeque;
use std::fmt;

use crate::credit::FRAME_COST;

/// An inbox that ran empty gives back more memory than this: some deliveries of a busy transport, so that
/// a reader that keeps up never makes the inbox move. Only a stream whose window grew can have more
/// than 256 KiB, and all windows together grow by a bounded amount.
const KEPT: usize = 1 << 20;
/// What was read in front of the rest is dropped when it is at least this much and half of all.
const READ_KEPT: usize = 64 << 10;

/// Messages received and not yet read, in order. A reader may take all of a stream's at once with
/// [`crate::Connection::take`] and read them without the connection.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// `bytes[..at]` were read.
    at: usize,
    /// Where messages end, in bytes since the first that was ever pushed.
    ends: VecDeque<u64>,
    /// How many bytes were ever read.
    read: u64,
    /// What reading has set free and nobody has taken note of, in credit.
    freed: u64,
}

impl Inbox {
    /// Moves bytes of the first message to `buf`: how many, and whether the message ends with them.
    /// None if there is nothing.
    pub fn read(&mut self, buf: &mut [u8]) -> Option<(usize, bool)> {
        self.with_part(buf.len(), |part| buf[..part.len()].copy_from_slice(part))
    }

    /// As [`Self::read`], but appends at most `max` bytes to `buf`.
    pub fn read_to(&mut self, buf: &mut Vec<u8>, max: usize) -> Option<(usize, bool)> {
        self.with_part(max, |part| buf.extend_from_slice(part))
    }

    /// What has come of the first message and can be read at once, and whether the message ends with it.
    /// None if there is nothing.
    pub fn peek(&self) -> Option<(&[u8], bool)> {
        let unread = &self.bytes[self.at..];
        let end = self.ends.front().map(|end| (end - self.read) as usize);
        let ready = end.unwrap_or(unread.len());
        (ready > 0 || end.is_some()).then(|| (&unread[..ready], end.is_some()))
    }

    /// Counts the first `len` bytes of what [`Self::peek`] gives as read; more than it gives is as much as it
    /// gives. A message that ends with them is over.
    pub fn consume(&mut self, len: usize) {
        let Some((part, ends)) = self.peek() else { return };
        let (ready, len) = (part.len(), len.min(part.len()));
        self.at += len;
        self.read += len as u64;
        self.freed += len as u64;
        if ends && len == ready {
            self.ends.pop_front();
            self.freed += FRAME_COST;
        }
        if self.at == self.bytes.len() {
            self.at = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT {
                self.bytes.shrink_to(KEPT);
            }
        }
    }

    /// What reading has set free since the last call, in credit: for [`crate::Connection::release`].
    pub fn take_freed(&mut self) -> u64 {
        std::mem::take(&mut self.freed)
    }

    /// What [`Self::take_freed`] would give.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// Whether nothing is left to read.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len() && self.ends.is_empty()
    }

    /// The memory that it has taken, in bytes: allocated, not only used.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u64>()
    }

    /// Appends a part of a message, its last if `end`.
    pub(crate) fn push(&mut self, bytes: &[u8], end: bool) {
        if self.at >= READ_KEPT && self.at >= self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
        if end {
            self.ends.push_back(self.read + (self.bytes.len() - self.at) as u64);
        }
    }

    /// Throws everything away.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Hands at most `max` bytes of the first message to `sink`.
    fn with_part(&mut self, max: usize, sink: impl FnOnce(&[u8])) -> Option<(usize, bool)> {
        let (part, ends) = self.peek()?;
        let (ready, len) = (part.len(), part.len().min(max));
        sink(&part[..len]);
        self.consume(len);
        Some((len, ends && len == ready))
    }
}

/// Messages are not for logs.
impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({} bytes)", self.bytes.len() - self.at)
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
        });
    }

    #[test]
    fn what_is_looked_at_stays_until_it_is_consumed() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.peek(), None);
        inbox.push(b"ab", false);
        assert_eq!(inbox.peek(), Some((&b"ab"[..], false)));
        inbox.push(b"c", true);
        inbox.push(b"", true);
        inbox.consume(2);
        inbox.consume(0);
        assert_eq!((inbox.peek(), inbox.freed()), (Some((&b"c"[..], true)), 2));
        inbox.consume(usize::MAX);
        assert_eq!(inbox.take_freed(), 3 + FRAME_COST);
        assert_eq!(inbox.peek(), Some((&b""[..], true)));
        inbox.consume(0);
        assert_eq!((inbox.take_freed(), inbox.peek()), (FRAME_COST, None));
        assert!(inbox.is_empty());
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
