//! The monitor of fast sockets: it matches the two ends of a TCP connection, and hands both ends
//! one segment of shared memory.
//!
//! There is one monitor for each user, at [`socket_path`]. A process whose sockets are fast
//! connects to it, and offers each socket that may leave TCP. The monitor reads both addresses of
//! an offered socket from the kernel, closes it, and looks for an offer with the same addresses the
//! other way round, in the same network namespace. Both ends then get the file of one
//! [segment](levada_ring::Segment), and processes that meet for the first time what wakes the
//! other. After that the monitor has no part in the connection: it keeps no descriptor of it, and
//! may end.
//!
//! It serves processes of its own user only, never waits for a client, and sleeps without a timer
//! unless an offer is pending.
//!
//! [`levada_ring::wire`] has the messages, [`levada_ring::records`] what processes show of their
//! connections.

mod client;
mod clients;
mod closing;
mod connection;
mod detach;
mod identity;
mod listener;
mod liveness;
mod location;
mod options;
mod packet;
mod ports;
mod request;
mod routes;
mod server;
mod state;

pub use client::{Client, ClientError, Process};
pub use detach::detach;
pub use listener::{ListenError, prepare_folder};
pub use location::{SOCKET_VARIABLE, socket_path};
pub use options::Options;
pub use server::{Monitor, Stop};

#[cfg(test)]
mod tests;
