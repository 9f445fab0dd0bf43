//! One file to many peers. A *coordinator* knows which *peer* has which *chunk*; peers pass chunks
//! on to each other, and verify each one against the BLAKE3 root of the content.
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
mod output;
pub mod peer;
mod random;
pub mod simulator;
mod timeout;

pub use description::{Description, DescriptionError, UdpStream};
pub use geometry::{ChunkSize, Geometry, GeometryError, MAX_CHUNKS};
pub use output::Output;

/// A peer of one share, as the coordinator numbers it. Numbers are not reused during the life of a
/// share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// Stands for the coordinator itself.
    pub const COORDINATOR: Self = Self(0);
}

/// What a share holds: bytes, known by their BLAKE3 root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    /// The BLAKE3 hash of the bytes.
    pub root: [u8; 32],
    /// The bytes, and how they are divided.
    pub geometry: Geometry,
}
