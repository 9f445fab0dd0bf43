//! Receiving and sending on a connection: which way the bytes go, and the waits.

mod end;
mod kernel;
mod quick;
mod receiving;
mod sending;
mod start;
mod waiting;

pub use kernel::receive_in_kernel;
pub use quick::{receive as receive_quickly, send as send_quickly};
pub use receiving::{receive, wait_for_bytes};
pub use sending::{send, send_file, wait_for_room};
pub use start::{is_ring_next, settle_inbound, take, unread_in_ring};
pub use waiting::{Wait, deadline_of, pause};

/// What a call on a ring has come to.
enum Outcome {
    /// What the call returns, with the error number set.
    Done(isize),
    /// The direction is not, or no longer, on the ring.
    NotRing,
}
