//! A transport with what was read from it and what is to be written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use levada_transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first size of the read buffer, in bytes: more than the longest frame.
const FIRST_READ: usize = 20 * 1024;
/// The most bytes that are delivered at once: more than the longest frame.
pub const MAX_DELIVERED: usize = 32 * 1024;
/// The size of the read buffer of a peer that fills it.
const LARGEST_READ: usize = 128 * 1024;

/// A transport with a read buffer and a write buffer.
pub struct Pipe {
    transport: Box<dyn Transport>,
    input: Vec<u8>,
    filled: usize,
    /// The last read has filled the buffer: there is probably more than fits into it.
    was_full: bool,
    output: Vec<u8>,
    sent: usize,
    /// The other side sends nothing more.
    ended: bool,
}

impl Pipe {
    /// `received` was read from the transport before.
    pub fn new(transport: Box<dyn Transport>, received: Vec<u8>) -> Self {
        let filled = received.len();
        let mut input = received;
        input.resize(FIRST_READ.max(filled), 0);
        let output = Vec::new();
        Self { transport, input, filled, was_full: false, output, sent: 0, ended: false }
    }

    /// Whether the other side has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads more, and notes the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.was_full && self.input.len() < LARGEST_READ {
            self.input.resize(LARGEST_READ, 0);
        } else if self.filled == self.input.len() {
            self.input.resize(LARGEST_READ.max(self.filled * 2), 0);
        }
        let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
        ready!(Pin::new(&mut self.transport).poll_read(cx, &mut buffer))?;
        let length = buffer.filled().len();
        self.was_full = buffer.remaining() == 0;
        self.filled += length;
        self.ended = length == 0;
        Poll::Ready(Ok(()))
    }

    /// What was read and not consumed.
    pub fn received(&mut self) -> &mut [u8] {
        &mut self.input[..self.filled]
    }

    /// Removes consumed bytes from the front.
    pub fn consume(&mut self, length: usize) {
        self.input.copy_within(length..self.filled, 0);
        self.filled -= length;
        // A peer that pauses gives the memory back.
        if length > 0 && length < FIRST_READ && self.filled == 0 && self.input.len() > FIRST_READ {
            self.input = vec![0; FIRST_READ];
        }
    }

    /// Where the next bytes to write go; only if everything was written.
    pub fn output(&mut self) -> Option<&mut Vec<u8>> {
        if self.sent < self.output.len() {
            return None;
        }
        self.output.clear();
        self.sent = 0;
        Some(&mut self.output)
    }

    /// Whether bytes wait to be written.
    pub fn is_writing(&self) -> bool {
        self.sent < self.output.len()
    }

    /// The memory of both buffers, in bytes. An output buffer without content is released before.
    pub fn memory(&mut self) -> usize {
        if !self.is_writing() {
            self.output = Vec::new();
            self.sent = 0;
        }
        self.input.capacity() + self.output.capacity()
    }

    /// How much of the output is written.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Writes until everything is written.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.output.len() {
            let rest = &self.output[self.sent..];
            let length = ready!(Pin::new(&mut self.transport).poll_write(cx, rest))?;
            if length == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += length;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends this side's direction.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }

    /// Reads and discards until the other side has ended. Closing a socket with unread input would
    /// discard what was sent.
    pub fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended {
            self.filled = 0;
            if ready!(self.poll_read(cx)).is_err() {
                break;
            }
        }
        Poll::Ready(())
    }
}
