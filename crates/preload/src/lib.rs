//! Carries the TCP connections of an unmodified program over shared memory, when the program at the
//! other end does the same on this host (`levada fast`).
//!
//! The dynamic loader puts this library before libc (LD_PRELOAD), so that the program calls the
//! functions in `hooks`. The program keeps its kernel sockets; a table (`table`) says which of its
//! descriptors are connections (`connection`). After its second exchange, a connection is offered
//! to the monitor (`monitor`); when both ends have the segment, each direction moves to a ring
//! (`stream`). TCP stays open underneath: it says when the peer's end is closed, and every way back
//! (`demote`) leads there.
//!
//! Source: "SocksDirect", intra-host part.

mod arena;
mod connection;
mod demote;
mod direct;
mod epoll;
mod errno;
mod history;
mod hooks;
mod io_uring;
mod latest;
mod lifecycle;
mod lock;
mod memory;
mod monitor;
mod pieces;
mod poll;
mod preloading;
mod prepare;
mod private;
mod process;
mod readiness;
mod real;
mod seccomp;
mod segments;
mod settings;
mod sharing;
mod shown;
mod spin;
mod stream;
mod table;
mod tcp;
mod tcp_only;
mod upgrade;
mod waking;
