//! Sessions that grant each middlebox just what it needs (`docs/protocol.md`, "Sessions with
//! middleboxes"; "Multi-Context TLS (mcTLS): Enabling Secure In-Network Functionality in TLS").
//!
//! The protocol does no I/O: time and bytes are passed in to [`PathConnection`] at the endpoints
//! and to [`Relay`] at a middlebox. [`driver`] moves them over transports with tokio.

#![forbid(unsafe_code)]

mod audit;
mod client;
mod contexts;
mod counter;
pub mod driver;
mod endpoint;
mod error;
mod flow;
mod frame;
mod hop;
mod inspector;
mod keepalive;
mod kem;
mod messages;
mod path;
mod receiver;
mod record;
mod relay;
mod schedule;
mod sender;
mod server;
mod tail;
mod tickets;

#[cfg(test)]
mod tests;

pub use driver::{
    Dialed, PathError, PathSession, accept_incoming, accept_path, connect_path, is_path, relay,
};
pub use endpoint::{PathConnection, PathEvent};
pub use error::{ContextError, Role};
pub use hop::{HopPolicy, HopSetup};
pub use inspector::{Action, AnswerPart, Inspector, Piece};
pub use path::{
    Context, Hop, Kem, MAX_CONTEXTS, MAX_MIDDLEBOXES, Party, Path, Purpose, ResumeId, Right,
};
pub use receiver::Received;
pub use relay::Relay;
pub use schedule::Direction;
pub use server::{PathPolicy, ServerPaths};
pub use tickets::{HopTickets, PathSessions, PathTickets};
