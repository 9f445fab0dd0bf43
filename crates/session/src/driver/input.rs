//! The input of a driver: reading from the transport, and what the connection may hold.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, ReadBuf};

use super::{Driver, Progress, error_of};

/// The first size of the read buffer, in bytes: more than the longest record (RFC 8446 section 5.2). A peer that has not
/// finished its handshake costs no more than this.
pub(super) const FIRST_READ: usize = 18 * 1024;
/// The largest size of the read buffer, for peers that fill it.
const LARGEST_READ: usize = 8 * FIRST_READ;
/// A read of fewer bytes than this is small: the peer is not busy.
const SMALL_READ: usize = 4 * 1024;
/// The read buffer shrinks after this many small reads in a row. A busy peer pauses for fewer.
const SHRINK_AFTER: u8 = 64;

impl Driver {
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.account.is_some() && !self.can_read() {
            return Progress::Waiting;
        }
        let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
        match Pin::new(&mut self.transport).poll_read(cx, &mut buffer) {
            Poll::Pending => Progress::Waiting,
            Poll::Ready(Ok(())) => {
                let length = buffer.filled().len();
                self.filled += length;
                self.read += length;
                if length == 0 { self.transport_ended() } else { self.deliver() }
            }
            Poll::Ready(Err(error)) => self.transport_failed(&error),
        }
    }

    /// Whether the connection may hold more memory. If not, the driver reads later, or the budget closes the connection.
    fn can_read(&mut self) -> bool {
        let now = Instant::now();
        if let Some(blocked_since) = self.blocked_since.take() {
            self.waited += now.duration_since(blocked_since);
        }
        if self.account() {
            return true;
        }
        self.blocked_since = Some(now);
        if let Some(account) = &self.account {
            account.close_if_waited(self.waited, &self.shared);
        }
        false
    }

    /// Reports the connection's memory to its budget, until the peer has proved a right; returns whether it may hold more.
    pub(super) fn account(&mut self) -> bool {
        let Some(account) = &self.account else { return true };
        let state = self.shared.lock();
        let (accounted, memory) = (state.accounted, state.channel.memory());
        drop(state);
        if !accounted {
            self.account = None;
            return true;
        }
        account.update(memory + self.input.capacity() + self.output.capacity())
    }

    /// Passes what was read to the channel and keeps the incomplete record at the end.
    pub(super) fn deliver(&mut self) -> Progress {
        let mut state = self.shared.lock();
        let result = state.channel.receive(Instant::now(), &mut self.input[..self.filled]);
        state.dispatch_events();
        match result {
            Ok(consumed) => {
                let connected = state.connected;
                drop(state);
                let read = self.filled;
                self.input.copy_within(consumed..read, 0);
                self.filled -= consumed;
                if connected && self.account.is_none() {
                    self.fit_input(read);
                }
                Progress::Moved
            }
            Err(error) => {
                state.end(error_of(error));
                Progress::Over
            }
        }
    }

    /// Grows the read buffer for a peer that fills it, and shrinks it after small reads.
    fn fit_input(&mut self, read: usize) {
        let length = self.input.len();
        if read >= SMALL_READ {
            self.small_reads = 0;
        }
        if read == length && length < LARGEST_READ {
            self.input.resize(LARGEST_READ.min(length * 4), 0);
        } else if self.filled == 0 && read < SMALL_READ && length > FIRST_READ {
            self.small_reads += 1;
            if self.small_reads == SHRINK_AFTER {
                self.small_reads = 0;
                self.input.truncate(FIRST_READ);
                self.input.shrink_to_fit();
            }
        }
    }

    /// Reads what the peer sent before a write failed: its CLOSE gives the reason, which a broken pipe does not.
    pub(super) fn drain_read(&mut self, cx: &mut Context<'_>) {
        loop {
            let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
            let read = Pin::new(&mut self.transport).poll_read(cx, &mut buffer);
            let length = buffer.filled().len();
            if !matches!(read, Poll::Ready(Ok(()))) || length == 0 {
                return;
            }
            self.filled += length;
            if self.deliver() != Progress::Moved {
                return;
            }
        }
    }
}
