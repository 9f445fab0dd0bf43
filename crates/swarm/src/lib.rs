//! One file to many peers. A *coordinator* knows which *peer* has which *chunk*; peers pass chunks on to each other, and verify each one
//! against the BLAKE3 root of the content.
//!
//! Coordinator and peer are state machines without I/O.

pub mod bitmap;
pub mod content;
pub mod coordinator;
pub mod description;
pub mod driver;
mod exchange;
mod geometry;
pub mod mediated;
pub mod message;
pub mod mode;
pub mod peer;
mod random;
pub mod simulator;

use message::Message;

pub use description::{Description, DescriptionError, UdpStream};
pub use geometry::{ChunkSize, Geometry, GeometryError, MAX_CHUNKS};

/// A peer of one share, as the coordinator numbers it. Numbers are not reused during the life of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// Stands for the coordinator itself.
    pub const COORDINATOR: Self = Self(0);
}

/// What a driver does for a coordinator or a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a control message, in order.
    Send(PeerId, Message),
    /// Read a chunk and the siblings of `levels` levels, and send them. When they have left, the driver reports `Sent`.
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
        /// Where it listens, `host:port`.
        addresses: Vec<String>,
    },
    /// Accept a connection of this peer, and report `Linked`. If none comes for a while, connect to it, but do not report that this fails.
    Allow {
        /// The peer.
        peer: PeerId,
        /// The identity that it must prove.
        identity: [u8; 32],
        /// Where it listens, `host:port`.
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
        /// Whose copy it is.
        provider: PeerId,
    },
    /// Only in mediated mode: remove this chunk from the cache.
    Evict(u32),
}

/// What a share holds: bytes, known by their BLAKE3 root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    /// The BLAKE3 hash of the bytes.
    pub root: [u8; 32],
    /// The bytes, and how they are divided.
    pub geometry: Geometry,
}
