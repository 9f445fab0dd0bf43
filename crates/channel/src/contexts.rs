//! Sessions with middleboxes (`docs/protocol.md`, "Sessions with middleboxes").

mod audit;
mod client;
mod counter;
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

pub use endpoint::{PathConnection, PathEvent};
pub use error::{ContextError, Role};
pub use frame::PATH as PATH_FRAME;
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
