//! Transports for records: the [`Transport`] trait, for TCP, QUIC, Unix sockets, and memory in
//! tests.

mod memory;
#[cfg_attr(not(feature = "udp"), path = "without_quic.rs")]
pub mod quic;
mod tcp;
mod traffic;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::UnixStream;

pub use memory::{limit_arenas, return_free_memory};
pub use quic::Quic;
pub use tcp::{Tcp, connect_tcp};
pub use traffic::{Counted, Traffic, TrafficEntry};

/// An ordered, reliable stream of bytes, both ways.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Limits the bytes that the transport accepts before it has sent them to about `bytes`, so
    /// that interactive data does not wait behind them; `None` removes the limit. A transport
    /// without such a queue ignores it.
    fn limit_unsent(&mut self, bytes: Option<u32>) {
        let _ = bytes;
    }

    /// Limits the sending rate; `None` removes the limit. A transport without such a limit ignores
    /// it.
    fn limit_rate(&mut self, bytes_per_second: Option<u64>) {
        let _ = bytes_per_second;
    }

    /// The bytes per second at which the transport sends now if it has something to send; `None` if
    /// it does not know.
    fn sending_rate(&self) -> Option<u64> {
        None
    }

    /// Whether congestion control looks for a higher rate; it does at first. While the rate is
    /// limited to less than the network carries, there is none to find, and looking holds data
    /// back. A transport without a choice ignores it.
    fn probe(&mut self, probes: bool) {
        let _ = probes;
    }

    /// Limits the bytes that the transport receives before they are read to `bytes`; `None` sets
    /// the limit of a peer that may use more memory. A transport whose limit is the system's
    /// ignores it. QUIC begins with 64 KiB.
    fn limit_unread(&mut self, bytes: Option<u32>) {
        let _ = bytes;
    }
}

impl Transport for UnixStream {}

/// Both ends in one process, for tests.
impl Transport for DuplexStream {}
