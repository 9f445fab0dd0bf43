//! The input of a driver: reading from the transport, and what the connection may hold.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, ReadBuf};

use super::{Driver, FIRST_READ, Progress, error_of};

/// The read buffer of each thread, in bytes.
const LARGEST_READ: usize = 8 * FIRST_READ;

thread_local! {
    /// The read buffer of all connections of this thread, during a poll of one of them: a
    /// connection keeps only an incomplete record.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the read buffer of this thread.
pub(super) fn with_read_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut buffer = READ_BUFFER.take();
    buffer.resize(LARGEST_READ, 0);
    let result = read(&mut buffer);
    READ_BUFFER.set(buffer);
    result
}

impl Driver {
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>) -> Progress {
        if !self.may_read() {
            return Progress::Waiting;
        }
        with_read_buffer(|buffer| match self.poll_read(cx, buffer) {
            Poll::Pending => Progress::Waiting,
            Poll::Ready(Ok(0)) => self.transport_ended(),
            Poll::Ready(Ok(length)) => self.deliver(&mut buffer[..length]),
            Poll::Ready(Err(error)) => self.transport_failed(&error),
        })
    }

    /// Reads from the transport behind the incomplete record, and puts that in front; returns the
    /// length of both, or 0 if the transport has ended.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let longest = if self.memory.is_some() { FIRST_READ } else { LARGEST_READ };
        let (record, free) = buffer[..longest].split_at_mut(self.incomplete.len());
        let mut free = ReadBuf::new(free);
        ready!(Pin::new(&mut self.transport).poll_read(cx, &mut free))?;
        let length = free.filled().len();
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        record.copy_from_slice(&self.incomplete);
        self.read += length;
        Poll::Ready(Ok(record.len() + length))
    }

    /// Passes `bytes` to the channel, and keeps the incomplete record at the end.
    pub(super) fn deliver(&mut self, bytes: &mut [u8]) -> Progress {
        let mut state = self.shared.lock();
        let result = state.channel.receive(Instant::now(), bytes);
        state.dispatch_events();
        let consumed = match result {
            Ok(consumed) => consumed,
            Err(error) => {
                state.end(error_of(error));
                return Progress::Over;
            }
        };
        drop(state);
        if consumed == bytes.len() {
            // A connection without input holds no memory for it.
            self.incomplete = Vec::new();
        } else {
            self.incomplete.clear();
            self.incomplete.extend_from_slice(&bytes[consumed..]);
        }
        Progress::Moved
    }

    /// Whether the connection may hold more memory. If not, the driver reads later, or the budget
    /// closes the connection.
    fn may_read(&mut self) -> bool {
        let Some(held) = self.held() else { return true };
        let session = self.shared.as_ref();
        self.memory.as_mut().is_none_or(|memory| memory.may_read(held, session))
    }

    /// Reports the connection's memory to its budget, until the peer has proved a right.
    pub(super) fn report_memory(&mut self) {
        let held = self.held();
        if let (Some(memory), Some(held)) = (&mut self.memory, held) {
            memory.report(held);
        }
    }

    /// The connection's memory in bytes; none once it is unbounded, because the peer has proved a
    /// right.
    fn held(&mut self) -> Option<usize> {
        self.memory.as_ref()?;
        let state = self.shared.lock();
        let accounted = state.accounted;
        let memory = state.channel.memory();
        drop(state);
        if !accounted {
            self.memory = None;
            self.transport.limit_unread(None);
            return None;
        }
        Some(memory + self.incomplete.capacity() + self.output.capacity())
    }

    /// Reads what the peer sent before a write failed: its CLOSE gives the reason, which a broken
    /// pipe does not.
    pub(super) fn drain_read(&mut self, cx: &mut Context<'_>) {
        with_read_buffer(|buffer| {
            while let Poll::Ready(Ok(length @ 1..)) = self.poll_read(cx, buffer) {
                if self.deliver(&mut buffer[..length]) != Progress::Moved {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use levada_channel::{Class, Connection as Channel};
    use levada_core::{SecretKey, SystemRandom};
    use tokio::io::duplex;

    use super::super::output::LARGEST_IDLE_OUTPUT;
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
    async fn a_connection_keeps_an_incomplete_record_only() {
        let (mut drivers, shared) = connected(256 * 1024).await;
        write(&shared, 100_000);
        settle(&mut drivers).await;
        assert!(drivers.iter().all(|driver| driver.incomplete.capacity() == 0));
        assert!(drivers[0].output.capacity() <= LARGEST_IDLE_OUTPUT);
        // The transport holds less than a record.
        let (mut drivers, shared) = connected(1000).await;
        write(&shared, 5000);
        poll_fn(|cx| {
            assert!(drivers[0].poll_rounds(cx, false).is_pending());
            assert!(drivers[1].poll_rounds(cx, false).is_pending());
            Poll::Ready(())
        })
        .await;
        let length = drivers[1].incomplete.len();
        assert!(length > 0 && length <= FIRST_READ, "{length}");
        settle(&mut drivers).await;
        assert_eq!(drivers[1].incomplete.capacity(), 0);
    }
}
