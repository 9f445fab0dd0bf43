//! The input of a driver: reading from the transport, and what the connection may hold.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, ReadBuf};

use super::{Driver, Progress, error_of};

/// The first size of the read buffer, in bytes: more than the longest record (RFC 8446 section 5.2). A peer that has not
/// finished its handshake costs no more than this.
///
/// A connection has a buffer of its own only after an incomplete record or a read of this length. Until then it reads into
/// the buffer of its thread, so that an idle connection has none.
pub(super) const FIRST_READ: usize = 18 * 1024;
/// The largest size of the read buffer, for peers that fill it.
const LARGEST_READ: usize = 8 * FIRST_READ;
/// A read of fewer bytes than this is small: the peer is not busy.
const SMALL_READ: usize = 4 * 1024;
/// The read buffer is released after this many small reads in a row. A busy peer pauses for fewer.
const RELEASE_AFTER: u8 = 64;

thread_local! {
    /// The read buffer of all connections of this thread that have none of their own, during a poll of one of them.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the read buffer of this thread.
pub(super) fn with_read_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut buffer = READ_BUFFER.take();
    buffer.resize(FIRST_READ, 0);
    let result = read(&mut buffer);
    READ_BUFFER.set(buffer);
    result
}

impl Driver {
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.account.is_some() && !self.can_read() {
            return Progress::Waiting;
        }
        if self.input.is_empty() {
            return self.poll_thread_buffer(cx);
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

    /// Reads into the buffer of this thread, and takes a buffer of its own if the peer needs one.
    fn poll_thread_buffer(&mut self, cx: &mut Context<'_>) -> Progress {
        with_read_buffer(|input| {
            let mut buffer = ReadBuf::new(input);
            match Pin::new(&mut self.transport).poll_read(cx, &mut buffer) {
                Poll::Pending => Progress::Waiting,
                Poll::Ready(Ok(())) => {
                    let length = buffer.filled().len();
                    self.read += length;
                    if length == 0 {
                        self.transport_ended()
                    } else {
                        self.deliver_first(&mut input[..length])
                    }
                }
                Poll::Ready(Err(error)) => self.transport_failed(&error),
            }
        })
    }

    /// Passes `bytes` to the channel, for a connection without a read buffer.
    pub(super) fn deliver_first(&mut self, bytes: &mut [u8]) -> Progress {
        let Some(consumed) = self.receive(bytes) else { return Progress::Over };
        if consumed < bytes.len() || bytes.len() >= FIRST_READ {
            let rest = &bytes[consumed..];
            self.input.resize(FIRST_READ.max(rest.len()), 0);
            self.input[..rest.len()].copy_from_slice(rest);
            self.filled = rest.len();
        }
        Progress::Moved
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
            account.close_if_waited(self.waited, self.shared.as_ref());
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
            self.transport.limit_unread(None);
            return true;
        }
        account.update(memory + self.input.capacity() + self.output.capacity())
    }

    /// Passes what was read to the channel and keeps the incomplete record at the end.
    fn deliver(&mut self) -> Progress {
        let read = self.filled;
        let mut input = std::mem::take(&mut self.input);
        let consumed = self.receive(&mut input[..read]);
        self.input = input;
        let Some(consumed) = consumed else { return Progress::Over };
        self.input.copy_within(consumed..read, 0);
        self.filled -= consumed;
        self.fit_input(read);
        Progress::Moved
    }

    /// Passes `bytes` to the channel; returns how many it has consumed, or None if the connection has ended.
    fn receive(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let mut state = self.shared.lock();
        let result = state.channel.receive(Instant::now(), bytes);
        state.dispatch_events();
        result.map_err(|error| state.end(error_of(error))).ok()
    }

    /// Grows the read buffer for a peer that fills it, and releases it after small reads.
    fn fit_input(&mut self, read: usize) {
        let length = self.input.len();
        if read >= SMALL_READ {
            self.small_reads = 0;
        }
        if read == length && length < LARGEST_READ {
            // A peer that has not proved a right gets no more.
            if self.account.is_none() && self.shared.lock().connected {
                self.input.resize(LARGEST_READ.min(length * 4), 0);
            }
        } else if self.filled == 0 && read < SMALL_READ {
            self.small_reads += 1;
            if self.small_reads >= RELEASE_AFTER {
                self.release_buffers();
            }
        }
    }

    /// Releases the buffers that hold nothing.
    pub(super) fn release_buffers(&mut self) {
        self.small_reads = 0;
        if self.filled == 0 {
            self.input = Vec::new();
        }
        if self.sent == self.output.len() {
            (self.output, self.sent) = (Vec::new(), 0);
        }
    }

    /// Reads what the peer sent before a write failed: its CLOSE gives the reason, which a broken pipe does not.
    pub(super) fn drain_read(&mut self, cx: &mut Context<'_>) {
        self.input.resize(FIRST_READ.max(self.input.len()), 0);
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use levada_channel::{Class, Connection as Channel};
    use levada_core::{SecretKey, SystemRandom};
    use tokio::io::duplex;

    use super::*;
    use crate::shared::Shared;
    use crate::{ClientConfig, Options, ServerConfig};

    /// Polls both drivers until neither moves anything.
    async fn settle(drivers: &mut [Driver; 2]) {
        for _ in 0..20 {
            poll_fn(|cx| {
                for driver in drivers.iter_mut() {
                    assert!(driver.poll_rounds(cx, false).is_pending());
                }
                Poll::Ready(())
            })
            .await;
        }
    }

    /// The drivers of two connected ends, and the state of the first.
    async fn connected(memory: usize) -> ([Driver; 2], Arc<Shared>) {
        let key = SecretKey::generate(&SystemRandom).unwrap();
        let client = ClientConfig::new(&SecretKey::generate(&SystemRandom).unwrap()).unwrap();
        let server = ServerConfig::new(&key).unwrap();
        let now = Instant::now();
        let expected = Some(key.identity());
        let client = Channel::client(&client, expected, Options::default(), now).unwrap();
        let server = Channel::server(&server, Options::default(), now).unwrap();
        let (near, far) = duplex(memory);
        let shared = Shared::new(client);
        let mut drivers = [
            Driver::new(shared.clone(), Box::new(near), Vec::new(), None),
            Driver::new(Shared::new(server), Box::new(far), Vec::new(), None),
        ];
        settle(&mut drivers).await;
        assert!(drivers.iter().all(|driver| driver.shared.lock().connected));
        (drivers, shared)
    }

    fn write(shared: &Shared, length: usize) {
        let mut state = shared.lock();
        let id = state.channel.open(Class::Bulk).unwrap();
        assert_eq!(state.channel.write(id, &vec![7; length], true).unwrap(), Some(length));
    }

    #[tokio::test]
    async fn a_connection_has_a_read_buffer_only_after_an_incomplete_record() {
        let (mut drivers, shared) = connected(256 * 1024).await;
        write(&shared, 1000);
        settle(&mut drivers).await;
        assert!(drivers.iter().all(|driver| driver.input.capacity() == 0));
        // The transport holds less than a record.
        let (mut drivers, shared) = connected(1000).await;
        write(&shared, 5000);
        settle(&mut drivers).await;
        assert_eq!(drivers[1].input.capacity(), FIRST_READ);
        for driver in &mut drivers {
            driver.release_buffers();
            assert_eq!((driver.input.capacity(), driver.output.capacity()), (0, 0));
        }
    }
}
