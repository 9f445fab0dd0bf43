//! Receiving and sending on a connection: which way the bytes go, and the waits.

mod end;
mod kernel;
mod quick;
mod receiving;
mod sending;
mod start;
mod waiting;

pub use kernel::receive_in_kernel;
pub use receiving::receive;
pub use sending::{send, send_file};
pub use start::{is_ring_next, settle_inbound, unread_in_ring};

/// What a call on a ring has come to.
enum Outcome {
    /// What the call returns, with the error number set.
    Done(isize),
    /// The direction is not, or no longer, on the ring.
    NotRing,
}
