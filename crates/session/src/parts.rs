//! Parts of a driver: what moves bytes and time between a transport and a protocol without I/O.
//!
//! The drivers of sessions with middleboxes are built from them. Everything else uses
//! [`crate::Connection`].

pub use crate::budget::{Account, Accounted};
pub use crate::memory::Memory;
pub use crate::pipe::{MAX_DELIVERED, Pipe};
pub use crate::rounds::{poll_rounds, yield_now};
pub use crate::timer::{Timer, now};
