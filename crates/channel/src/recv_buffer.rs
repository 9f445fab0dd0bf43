//! Received messages that were not read yet.

use std::fmt;

use crate::credit::FRAME_COST;

/// The capacity, in bytes, that an empty buffer keeps. It holds several deliveries of a busy
/// transport, so that a reader that keeps up causes no reallocation. Only a stream whose window
/// grew can need more than 256 KiB, and the growth of all windows together is bounded.
const MAX_IDLE_CAPACITY: usize = 1 << 20;
/// The least length of a long part, in bytes.
const LONG_PART: usize = 8 << 10;
/// The capacity, in bytes, for the first part of a long message: growing to it step by step would
/// copy what came before.
const FIRST_CAPACITY: usize = 72 << 10;
/// Read bytes at the front are removed when they are at least this many and half of all.
const MIN_COMPACTION: usize = 64 << 10;
/// The same for the ends of read messages.
const MIN_ENDS_COMPACTION: usize = 1 << 10;

/// Messages received and not yet read, in order. A reader may take the whole buffer of a stream
/// with [`crate::Connection::take`] and read it without the connection.
#[derive(Default)]
pub struct RecvBuffer {
    bytes: Vec<u8>,
    /// `bytes[..at]` were read.
    at: usize,
    /// Where messages end, in bytes since the first one pushed.
    ends: Vec<u64>,
    /// The messages that end at `ends[..next_end]` were read.
    next_end: usize,
    /// How many bytes were read in total.
    read: u64,
    /// Credit that reading has freed since the last [`Self::take_freed`].
    freed: u64,
}

impl RecvBuffer {
    /// Moves bytes of the first message to `buf`. Returns how many, and whether the message ends
    /// with them; None if the buffer is empty.
    #[inline]
    pub fn read(&mut self, buf: &mut [u8]) -> Option<(usize, bool)> {
        self.take_part(buf.len(), |part| buf[..part.len()].copy_from_slice(part))
    }

    /// As [`Self::read`], but appends at most `max` bytes to `buf`. An empty `buf` is exchanged for
    /// the buffer if a message is all that it holds.
    pub fn read_to(&mut self, buf: &mut Vec<u8>, max: usize) -> Option<(usize, bool)> {
        let (part, end) = self.peek()?;
        let length = part.len();
        if buf.is_empty() && length == self.bytes.len() && length <= max {
            std::mem::swap(&mut self.bytes, buf);
            self.count(length, end);
            return Some((length, end));
        }
        self.take_part(max, |part| buf.extend_from_slice(part))
    }

    /// The received bytes of the first message, and whether the message ends with them; None if the
    /// buffer is empty.
    #[inline]
    pub fn peek(&self) -> Option<(&[u8], bool)> {
        let unread = &self.bytes[self.at..];
        match self.ends.get(self.next_end) {
            Some(end) => Some((&unread[..(end - self.read) as usize], true)),
            None => (!unread.is_empty()).then_some((unread, false)),
        }
    }

    /// Marks the first `len` bytes of what [`Self::peek`] returns as read, at most all of them. If
    /// the message ends with them, the next message follows.
    pub fn consume(&mut self, len: usize) {
        let Some((part, ends)) = self.peek() else { return };
        let ready = part.len();
        let len = len.min(part.len());
        self.advance(len, ends && len == ready);
    }

    /// The credit that reading has freed since the last call, for [`crate::Connection::release`].
    pub fn take_freed(&mut self) -> u64 {
        std::mem::take(&mut self.freed)
    }

    /// The credit that [`Self::take_freed`] would return.
    #[inline]
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// The number of bytes that are left to read.
    #[inline]
    pub fn unread(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether nothing is left to read.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len() && self.next_end == self.ends.len()
    }

    /// Frees the memory of an empty buffer; otherwise it does nothing.
    pub fn release_memory(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// The allocated memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u64>()
    }

    /// Allocates, if it is new, for a message that begins with a part of `length` bytes, if that is
    /// long.
    #[inline]
    pub(crate) fn expect_more_than(&mut self, length: usize) {
        if self.bytes.capacity() == 0 && length >= LONG_PART {
            self.bytes.reserve_exact(FIRST_CAPACITY);
        }
    }

    /// Appends a part of a message, its last if `end`.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8], end: bool) {
        if self.at >= MIN_COMPACTION && self.at >= self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        if self.next_end >= MIN_ENDS_COMPACTION && self.next_end >= self.ends.len() / 2 {
            self.ends.drain(..self.next_end);
            self.next_end = 0;
        }
        self.bytes.extend_from_slice(bytes);
        if end {
            self.ends.push(self.read + (self.bytes.len() - self.at) as u64);
        }
    }

    /// Discards all content and memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Passes at most `max` bytes of the first message to `sink`.
    #[inline]
    fn take_part(&mut self, max: usize, sink: impl FnOnce(&[u8])) -> Option<(usize, bool)> {
        let (part, ends) = self.peek()?;
        let ready = part.len();
        let len = part.len().min(max);
        sink(&part[..len]);
        let end = ends && len == ready;
        self.advance(len, end);
        Some((len, end))
    }

    /// Counts `len` bytes of the first message as read, and its end if `end`.
    #[inline]
    fn count(&mut self, len: usize, end: bool) {
        self.read += len as u64;
        self.freed += len as u64;
        if end {
            self.freed += FRAME_COST;
            self.next_end += 1;
            if self.next_end == self.ends.len() {
                self.next_end = 0;
                self.ends.clear();
            }
        }
    }

    /// `len` bytes of the first message were read, and its end if `end`.
    #[inline]
    fn advance(&mut self, len: usize, end: bool) {
        self.at += len;
        self.count(len, end);
        if self.at == self.bytes.len() {
            self.at = 0;
            self.bytes.clear();
            if self.bytes.capacity() > MAX_IDLE_CAPACITY {
                self.bytes.shrink_to(MAX_IDLE_CAPACITY);
            }
        }
    }
}

/// Prints the length only, so that no message gets into a log.
impl fmt::Debug for RecvBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuffer({} bytes)", self.bytes.len() - self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_pushed() {
        bolero::check!().with_type::<(Vec<(Vec<u8>, bool)>, u8)>().for_each(|(parts, size)| {
            let mut buffer = RecvBuffer::default();
            let mut buf = vec![0; usize::from(*size) + 1];
            let mut sent: Vec<Vec<u8>> = vec![vec![]];
            let mut got = sent.clone();
            for (bytes, end) in parts {
                buffer.push(bytes, *end);
                sent.last_mut().unwrap().extend(bytes);
                if *end {
                    sent.push(vec![]);
                }
                if bytes.len() % 3 == 0 {
                    drain(&mut buffer, &mut buf, &mut got);
                }
            }
            drain(&mut buffer, &mut buf, &mut got);
            assert_eq!(sent, got);
        });
    }

    #[test]
    fn peeked_bytes_stay_until_they_are_consumed() {
        let mut buffer = RecvBuffer::default();
        assert_eq!(buffer.peek(), None);
        buffer.push(b"ab", false);
        assert_eq!(buffer.peek(), Some((&b"ab"[..], false)));
        buffer.push(b"c", true);
        buffer.push(b"", true);
        buffer.consume(2);
        buffer.consume(0);
        assert_eq!((buffer.peek(), buffer.freed()), (Some((&b"c"[..], true)), 2));
        buffer.consume(usize::MAX);
        assert_eq!(buffer.take_freed(), 3 + FRAME_COST);
        assert_eq!(buffer.peek(), Some((&b""[..], true)));
        buffer.consume(0);
        assert_eq!((buffer.take_freed(), buffer.peek()), (FRAME_COST, None));
        assert!(buffer.is_empty());
    }

    /// The most bytes that a driver delivers between two polls of a reader.
    const DELIVERY: usize = 288 << 10;

    #[test]
    fn a_steady_load_causes_no_reallocation_and_an_empty_buffer_shrinks() {
        let mut buffer = RecvBuffer::default();
        let mut buf = vec![0; 64 << 10];
        let mut cycle = |buffer: &mut RecvBuffer, len: usize| {
            (0..len / 16_000).for_each(|_| buffer.push(&[0; 16_000], true));
            let full = buffer.bytes.capacity();
            drain(buffer, &mut buf, &mut vec![vec![]]);
            (full, buffer.bytes.capacity())
        };
        cycle(&mut buffer, 2 * DELIVERY);
        let steady = cycle(&mut buffer, DELIVERY);
        assert_eq!(steady.0, steady.1);
        for deliveries in [1, 2, 1, 1, 2] {
            assert_eq!(cycle(&mut buffer, deliveries * DELIVERY), steady);
        }
        assert!(cycle(&mut buffer, 8 << 20).1 <= MAX_IDLE_CAPACITY);
    }

    fn drain(buffer: &mut RecvBuffer, buf: &mut [u8], got: &mut Vec<Vec<u8>>) {
        loop {
            let last = got.last_mut().unwrap();
            let before = last.len();
            let Some((len, end)) = buffer.read_to(last, buf.len()) else { return };
            assert_eq!(last.len() - before, len);
            if end {
                got.push(vec![]);
            }
            let Some((len, end)) = buffer.read(buf) else { return };
            got.last_mut().unwrap().extend(&buf[..len]);
            if end {
                got.push(vec![]);
            }
        }
    }
}
