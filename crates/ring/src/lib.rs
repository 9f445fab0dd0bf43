//! One stream of bytes in each direction, in memory that two processes share.
//!
//! A [`Segment`] is a sealed memfd with two rings, one for each direction. A [`Producer`] and a
//! [`Consumer`] are the two ends of one ring: each keeps its own cursor and copies bytes once. A
//! ring begins with 64 KiB and can grow to 1 MiB.
//!
//! Everything in the segment can be changed by the peer at any time. It is therefore read by atomic
//! access only, once, and checked before it is used: a peer that writes anything into the segment
//! makes calls fail with [`Corrupt`], and changes no memory outside the segment.
//!
//! Source: "SocksDirect" (per-socket ring buffers in user space), with the peer as an adversary,
//! which the paper's is not.

#[cfg(not(loom))]
mod account;
mod atomic;
mod consumer;
mod control;
mod death;
#[cfg(not(loom))]
pub mod elf;
pub mod ends;
mod futex;
pub mod handover;
#[cfg(not(loom))]
mod history;
mod layout;
#[cfg(not(loom))]
mod leaked;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod marks;
mod memory;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod pool;
mod processor;
mod producer;
pub mod queue;
#[cfg(not(loom))]
pub mod records;
#[cfg(not(loom))]
mod sealed;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod shared_copy;
mod side;
mod sleep;
#[cfg(not(loom))]
pub mod wire;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(not(loom))]
pub use account::Account;
pub use consumer::{Consumer, ConsumerState};
pub use control::Control;
#[cfg(not(loom))]
pub use futex::Sleep;
pub use handover::Start;
#[cfg(not(loom))]
pub use history::History;
#[cfg(not(loom))]
pub use layout::HALF;
pub use layout::{LARGE, PIECE, SEGMENT_LENGTH, SMALL};
#[cfg(not(loom))]
pub use leaked::Leaked;
#[cfg(not(loom))]
pub use mapping::{Half, OwnedHalf};
#[cfg(not(loom))]
pub use marks::Marks;
pub use memory::{Corrupt, Memory};
#[cfg(not(loom))]
pub use pool::Pool;
#[cfg(not(loom))]
pub use processor::processor;
pub use producer::{Producer, ProducerState};
pub use queue::SEGMENTS;
#[cfg(not(loom))]
pub use sealed::OpenError;
#[cfg(not(loom))]
pub use segment::Segment;
pub use side::Side;
pub use sleep::Waiter;
#[cfg(not(loom))]
pub use sleep::{Sleeper, now};
