//! Counts the bytes of streams and transports.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Transport;

/// The number of streams or transports of one purpose, and their bytes, since the process started.
#[derive(Debug, Default)]
pub struct Traffic {
    opened: AtomicU64,
    closed: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// One stream or transport of a [`Traffic`]; it counts as open until this is dropped.
#[derive(Debug)]
pub struct TrafficEntry(Arc<Traffic>);

impl Traffic {
    /// Counts a further stream or transport.
    pub fn enter(self: &Arc<Self>) -> TrafficEntry {
        self.opened.fetch_add(1, Ordering::Relaxed);
        TrafficEntry(self.clone())
    }

    /// The number of streams or transports so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// The number of those that are open.
    pub fn open(&self) -> u64 {
        // In this order, and with the `Release` of the drop, the difference is not negative.
        let closed = self.closed.load(Ordering::Acquire);
        self.opened().saturating_sub(closed)
    }

    /// The bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The bytes received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl TrafficEntry {
    /// Counts sent bytes.
    #[inline]
    pub fn add_sent(&self, bytes: usize) {
        self.0.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts received bytes.
    #[inline]
    pub fn add_received(&self, bytes: usize) {
        self.0.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for TrafficEntry {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::Release);
    }
}

/// A transport whose bytes are counted, once for each call of the transport.
pub struct Counted<T> {
    transport: T,
    entry: TrafficEntry,
}

impl<T: Transport> Counted<T> {
    /// Counts the bytes of `transport` in `traffic`.
    pub fn new(transport: T, traffic: &Arc<Traffic>) -> Self {
        Self { transport, entry: traffic.enter() }
    }
}

impl<T: Transport> Transport for Counted<T> {
    fn limit_unsent(&mut self, bytes: Option<u32>) {
        self.transport.limit_unsent(bytes);
    }

    fn limit_rate(&mut self, bytes_per_second: Option<u64>) {
        self.transport.limit_rate(bytes_per_second);
    }

    fn sending_rate(&self) -> Option<u64> {
        self.transport.sending_rate()
    }

    fn probe(&mut self, probes: bool) {
        self.transport.probe(probes);
    }

    fn limit_unread(&mut self, bytes: Option<u32>) {
        self.transport.limit_unread(bytes);
    }
}

impl<T: Transport> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.transport).poll_read(cx, buffer));
        self.entry.add_received(buffer.filled().len() - before);
        Poll::Ready(read)
    }
}

impl<T: Transport> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.transport).poll_write(cx, bytes));
        self.entry.add_sent(written.as_ref().map_or(0, |length| *length));
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn bytes_are_counted_in_both_directions_and_stay_after_the_end() {
        let traffic = Arc::new(Traffic::default());
        let (near, mut far) = duplex(64);
        let mut near = Counted::new(near, &traffic);
        near.write_all(b"12345").await.unwrap();
        far.write_all(b"abc").await.unwrap();
        let mut received = [0; 3];
        near.read_exact(&mut received).await.unwrap();
        assert_eq!((traffic.sent(), traffic.received(), traffic.open()), (5, 3, 1));
        drop(near);
        assert_eq!((traffic.sent(), traffic.received(), traffic.open()), (5, 3, 0));
        assert_eq!(traffic.opened(), 1);
    }
}
