//! Actions of a state machine, which its driver performs.

use crate::PeerId;
use crate::message::Message;

/// An action of the driver for a coordinator or a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a control message, in order.
    Send(PeerId, Message),
    /// Read a chunk and the siblings of `levels` levels, and send them. When they have left, the
    /// driver reports `Sent`.
    SendChunk {
        /// The receiver.
        to: PeerId,
        /// The chunk.
        index: u32,
        /// The levels between the chunk and the lowest node that the receiver knows.
        levels: u8,
    },
    /// Connect to this peer, and report `Linked` or `Unlinked`.
    Connect {
        /// The peer.
        peer: PeerId,
        /// The identity that it must prove.
        identity: [u8; 32],
        /// Its addresses, `host:port`.
        addresses: Vec<String>,
    },
    /// Accept a connection of this peer, and report `Linked`. If none comes for a while, connect to
    /// it, but do not report that this fails.
    Allow {
        /// The peer.
        peer: PeerId,
        /// The identity that it must prove.
        identity: [u8; 32],
        /// Its addresses, `host:port`.
        addresses: Vec<String>,
    },
    /// End the connection to this peer, and accept no other.
    Disconnect(PeerId),
    /// Only in mediated mode: read this chunk from the source into the cache, and report `Loaded`.
    Load(u32),
    /// Only in mediated mode: put this chunk, which has just come from `provider`, into the cache.
    Keep {
        /// The chunk.
        index: u32,
        /// The peer whose copy it is.
        provider: PeerId,
    },
    /// Only in mediated mode: remove this chunk from the cache.
    Evict(u32),
}
