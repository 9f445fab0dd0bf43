//! The functions of libc that the program calls instead.
//!
//! Each makes the program's own call in the kernel unless a connection of the table is concerned.
//! All are safe to call in the way that their manual pages say, and no other. A thread may be
//! cancelled in one that waits: they are unwound (`C-unwind`).

mod descriptors;
mod events;
mod limits;
mod programs;
mod receiving;
mod sending;
mod sockets;
mod system_calls;
mod tail_jumps;
mod uring;
mod users;

use libc::{c_void, iovec};

/// One buffer as a piece.
fn piece(buffer: *const c_void, length: usize) -> iovec {
    iovec { iov_base: buffer.cast_mut(), iov_len: length }
}
