//! The socket of an endpoint, which keeps the limit of addresses that are not validated.
//!
//! quinn stops at three times the bytes that it received, but finishes the datagram that exceeds
//! them: an address that sent 1200 bytes gets up to 4799. RFC 9000 section 8.1 permits 3600, so the
//! socket drops what exceeds them.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// The shortest datagram that begins a connection (RFC 9000 section 14.1).
const INITIAL: usize = 1200;
/// How many times the bytes that it sent an address may get.
const FACTOR: usize = 3;

/// Addresses with handshakes that are not validated: a few, or none.
#[derive(Debug, Default)]
pub(super) struct Unvalidated {
    addresses: Mutex<HashMap<SocketAddr, Bytes>>,
    /// The number of addresses, so that nothing is locked without any.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Bytes {
    handshakes: usize,
    received: usize,
    sent: usize,
}

impl Unvalidated {
    /// A handshake has begun, with a datagram that was received.
    pub(super) fn add(&self, address: SocketAddr) {
        let mut addresses = self.lock();
        let bytes = addresses.entry(address).or_default();
        bytes.handshakes += 1;
        bytes.received += INITIAL;
        self.count.store(addresses.len(), Ordering::Relaxed);
    }

    /// A handshake is validated or over.
    pub(super) fn remove(&self, address: SocketAddr) {
        let mut addresses = self.lock();
        if let Some(bytes) = addresses.get_mut(&address) {
            bytes.handshakes -= 1;
            if bytes.handshakes == 0 {
                addresses.remove(&address);
            }
        }
        self.count.store(addresses.len(), Ordering::Relaxed);
    }

    fn receive(&self, all: &[RecvMeta]) {
        if self.is_empty() {
            return;
        }
        let mut addresses = self.lock();
        for meta in all {
            if let Some(bytes) = addresses.get_mut(&meta.addr) {
                bytes.received += meta.len;
            }
        }
    }

    /// Whether `length` bytes may be sent to an address; counts them if so.
    fn may_send(&self, address: SocketAddr, length: usize) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut addresses = self.lock();
        let Some(bytes) = addresses.get_mut(&address) else { return true };
        let fits = bytes.sent + length <= FACTOR * bytes.received;
        if fits {
            bytes.sent += length;
        }
        fits
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Bytes>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket that drops what an unvalidated address must not get.
pub(super) struct LimitedSocket {
    pub(super) inner: Arc<dyn AsyncUdpSocket>,
    pub(super) unvalidated: Arc<Unvalidated>,
}

impl fmt::Debug for LimitedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl AsyncUdpSocket for LimitedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if !self.unvalidated.may_send(transmit.destination, transmit.contents.len()) {
            // As if the network had lost it.
            return Ok(());
        }
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.inner.poll_recv(cx, buffers, meta))?;
        self.unvalidated.receive(&meta[..count]);
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_three_times_what_it_sent_until_it_is_validated() {
        let unvalidated = Unvalidated::default();
        let address: SocketAddr = ([192, 0, 2, 1], 5000).into();
        assert!(unvalidated.may_send(address, 10_000));
        unvalidated.add(address);
        assert!(unvalidated.may_send(address, 3599));
        assert!(!unvalidated.may_send(address, 2));
        assert!(unvalidated.may_send(address, 1));
        let meta = RecvMeta { addr: address, len: 40, ..RecvMeta::default() };
        unvalidated.receive(&[meta]);
        assert!(unvalidated.may_send(address, 120));
        assert!(!unvalidated.may_send(address, 1));
        unvalidated.remove(address);
        assert!(unvalidated.may_send(address, 10_000));
        assert!(unvalidated.lock().is_empty());
    }
}
