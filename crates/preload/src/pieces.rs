//! The buffers of a call: what readv(2) and writev(2) take.

use std::slice;

use levada_ring::{Corrupt, Waiter};
use libc::iovec;

/// More pieces than the kernel takes (IOV_MAX) are not looked at.
const MOST: usize = 1024;

/// The pieces of an array of C.
///
/// # Safety
/// `pieces` points to `count` pieces, as readv(2) demands.
pub unsafe fn array<'a>(pieces: *const iovec, count: usize) -> &'a [iovec] {
    if pieces.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(pieces, count.min(MOST)) }
}

/// The first `count` bytes of buffers.
pub fn first(pieces: &[iovec], mut count: usize) -> Vec<iovec> {
    let cut = |piece: &iovec| {
        let iov_len = piece.iov_len.min(count);
        count -= iov_len;
        iovec { iov_base: piece.iov_base, iov_len }
    };
    pieces.iter().map(cut).collect()
}

/// The buffers behind the first `done` bytes, by start and length.
fn rest(pieces: &[iovec], mut done: usize) -> impl Iterator<Item = (*mut u8, usize)> {
    pieces.iter().filter_map(move |piece| {
        let skip = done.min(piece.iov_len);
        done -= skip;
        // SAFETY: the offset is within the piece.
        let start = unsafe { piece.iov_base.cast::<u8>().add(skip) };
        (skip < piece.iov_len).then_some((start, piece.iov_len - skip))
    })
}

/// The buffers behind the first `done` bytes.
pub fn behind(pieces: &[iovec], done: usize) -> Vec<iovec> {
    rest(pieces, done).map(|(start, iov_len)| iovec { iov_base: start.cast(), iov_len }).collect()
}

/// Buffers to fill.
pub struct Sink<'a> {
    pieces: &'a [iovec],
    total: usize,
    done: usize,
}

impl<'a> Sink<'a> {
    /// For the buffers of a call.
    pub fn new(pieces: &'a [iovec]) -> Self {
        Self { pieces, total: length(pieces), done: 0 }
    }

    /// The bytes that fit into all of them.
    pub fn room(&self) -> usize {
        self.total
    }

    /// Whether there is no room at all.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.done == self.total
    }

    /// Bytes filled in.
    pub fn done(&self) -> usize {
        self.done
    }

    /// For the buffers of a call that have `done` bytes already.
    pub fn after(pieces: &'a [iovec], done: usize) -> Self {
        Self { done, ..Self::new(pieces) }
    }

    /// Counts what `read` drops as filled in, until it drops less than asked for.
    pub fn skip(
        &mut self,
        mut read: impl FnMut(usize) -> Result<(usize, Option<Waiter>), Corrupt>,
    ) -> Result<Option<Waiter>, Corrupt> {
        let mut waiter = None;
        while !self.is_full() {
            let (length, woken) = read(self.total - self.done)?;
            self.done += length;
            waiter = waiter.or(woken);
            if length == 0 {
                break;
            }
        }
        Ok(waiter)
    }

    /// Fills in what `read` gives, until it gives less than asked for.
    pub fn fill(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> Result<(usize, Option<Waiter>), Corrupt>,
    ) -> Result<Option<Waiter>, Corrupt> {
        let mut waiter = None;
        for (start, length) in rest(self.pieces, self.done) {
            // SAFETY: the program promises the kernel that the piece is writable, and this library
            // too.
            let buffer = unsafe { slice::from_raw_parts_mut(start, length) };
            let (length, woken) = read(buffer)?;
            self.done += length;
            waiter = waiter.or(woken);
            if length < buffer.len() {
                break;
            }
        }
        Ok(waiter)
    }
}

/// Buffers to send.
pub struct Pieces<'a> {
    pieces: &'a [iovec],
    total: usize,
    done: usize,
}

impl<'a> Pieces<'a> {
    /// For the buffers of a call.
    pub fn new(pieces: &'a [iovec]) -> Self {
        Self { pieces, total: length(pieces), done: 0 }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether something is left.
    pub fn is_left(&self) -> bool {
        self.done < self.total
    }

    /// Bytes sent.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Hands what is left to `write`, until it takes less than it is given.
    pub fn drain<E>(&mut self, mut write: impl FnMut(&[u8]) -> Result<usize, E>) -> Result<(), E> {
        for (start, length) in rest(self.pieces, self.done) {
            // SAFETY: the program promises the kernel that the piece is readable, and this library
            // too.
            let bytes = unsafe { slice::from_raw_parts(start, length) };
            let length = write(bytes)?;
            self.done += length;
            if length < bytes.len() {
                break;
            }
        }
        Ok(())
    }
}

fn length(pieces: &[iovec]) -> usize {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.iov_len))
}
