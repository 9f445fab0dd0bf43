//! The subjects of the throughput experiment.

use std::fmt;

use anyhow::anyhow;
use levada_core::Framing;
use levada_harness::Window;

use super::ends::{Timing, measure};
use super::levada::Calls;
use super::{levada, node, tcp, tls};
use crate::testbed::Testbed;

/// The block lengths of Capone, in bytes.
pub const BLOCKS: [u16; 8] = [64, 128, 256, 512, 1024, 1500, 2048, 4096];
/// The block lengths of a quick run with a round trip above 0.
pub const FEW_BLOCKS: [u16; 3] = [64, 512, 4096];

/// A way to transfer messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The channel as `session` drives it.
    Levada(Framing),
    /// The same, with one call for [`levada::MANY`] messages.
    Many,
    /// The same, with a write for each message.
    Unbatched(Framing),
    /// Through a real node's `echo`.
    Node,
    /// TCP with message lengths, in writes of [`tcp::BATCH`].
    TcpFramed,
    /// The same, in writes of [`tcp::FITTED_BATCH`].
    TcpFitted,
    /// TCP with a write for each message.
    TcpPlain,
    /// rustls with a write for each message.
    TlsPerMessage,
    /// rustls in batches of [`tcp::BATCH`].
    TlsBatched,
    /// The same, of [`tcp::FITTED_TLS_BATCH`].
    TlsFitted,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Levada(framing) => write!(f, "levada/{framing}"),
            Self::Many => f.write_str("levada/many"),
            Self::Unbatched(framing) => write!(f, "levada/{framing}/unbatched"),
            Self::Node => f.write_str("levada/node"),
            Self::TcpFramed => f.write_str("tcp/plain-framed"),
            Self::TcpFitted => f.write_str("tcp/plain-framed/120K"),
            Self::TcpPlain => f.write_str("tcp/plain"),
            Self::TlsPerMessage => f.write_str("rustls/per-message"),
            Self::TlsBatched => f.write_str("rustls/batched"),
            Self::TlsFitted => f.write_str("rustls/batched/56K"),
        }
    }
}

impl Subject {
    /// The channel with each of these block lengths.
    pub fn blocks(lengths: &[u16]) -> anyhow::Result<Vec<Self>> {
        lengths.iter().map(|&length| Ok(Self::Levada(Framing::block(length)?))).collect()
    }

    /// All subjects.
    pub fn all(blocks: &[u16]) -> anyhow::Result<Vec<Self>> {
        let unbatched = Self::Unbatched(Framing::block(512)?);
        let mut all = vec![Self::Levada(Framing::Auto)];
        all.extend(Self::blocks(blocks)?);
        all.extend([Self::Many, unbatched, Self::Node]);
        all.extend([Self::TcpFramed, Self::TcpFitted, Self::TcpPlain]);
        all.extend([Self::TlsPerMessage, Self::TlsBatched, Self::TlsFitted]);
        Ok(all)
    }

    /// The subject with this name in rows.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let all = Self::all(&BLOCKS)?;
        all.into_iter()
            .find(|subject| subject.to_string() == name)
            .ok_or_else(|| anyhow!("there is no subject `{name}`"))
    }

    /// Sends messages of `bytes` bytes from the near to the far end, and measures the window.
    pub fn throughput(
        self,
        testbed: &Testbed,
        bytes: usize,
        timing: Timing,
    ) -> anyhow::Result<Window> {
        let message = &vec![7; bytes][..];
        if self == Self::Node {
            let (near, far) = node::pair()?;
            let address = std::net::SocketAddr::new(testbed.far_address(), 0);
            return measure(
                testbed,
                timing,
                |meter| node::send(near, message, meter),
                |meter| node::serve(far, address, meter),
            );
        }
        let (near, far) = testbed.connected()?;
        match self {
            Self::Levada(_) | Self::Unbatched(_) | Self::Many => {
                let keys = &levada::Keys::new()?;
                let (framing, calls) = match self {
                    Self::Levada(framing) => (framing, Calls::Each),
                    Self::Unbatched(framing) => (framing, Calls::Unbatched),
                    _ => (Framing::Auto, Calls::Many),
                };
                measure(
                    testbed,
                    timing,
                    |meter| levada::send(keys, near, framing, calls, message, meter),
                    |meter| levada::receive(keys, far, meter),
                )
            }
            Self::TcpFramed | Self::TcpFitted => {
                let fitted = self == Self::TcpFitted;
                let batch = if fitted { tcp::FITTED_BATCH } else { tcp::BATCH };
                measure(
                    testbed,
                    timing,
                    |meter| tcp::send_batched(near, batch, message, meter),
                    |meter| tcp::receive_batched(far, meter),
                )
            }
            Self::TlsPerMessage | Self::TlsBatched | Self::TlsFitted => {
                let keys = &tls::Keys::new()?;
                let batch = match self {
                    Self::TlsBatched => Some(tcp::BATCH),
                    Self::TlsFitted => Some(tcp::FITTED_TLS_BATCH),
                    _ => None,
                };
                measure(
                    testbed,
                    timing,
                    |meter| tls::send(keys, near, batch, message, meter),
                    |meter| tls::receive(keys, far, meter),
                )
            }
            Self::TcpPlain | Self::Node => measure(
                testbed,
                timing,
                |meter| tcp::send_each(near, message, meter),
                |meter| tcp::receive_each(far, meter),
            ),
        }
    }
}
