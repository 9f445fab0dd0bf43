//! One file to many peers. A *coordinator* knows which *peer* has which *chunk*; peers pass chunks on to each other, and verify each one
//! against the BLAKE3 root of the content.
//!
//! Coordinator and peer are state machines without I/O.

pub mod bitmap;
pub mod content;
mod geometry;

pub use geometry::{ChunkSize, Geometry, GeometryError, MAX_CHUNKS};

/// A peer of one share, as the coordinator numbers it. Numbers are not reused during the life of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// What a share holds: bytes, known by their BLAKE3 root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    /// The BLAKE3 hash of the bytes.
    pub root: [u8; 32],
    /// The bytes, and how they are divided.
    pub geometry: Geometry,
}
