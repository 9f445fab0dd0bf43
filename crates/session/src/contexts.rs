//! Sessions with middleboxes over transports: the endpoints ([`PathSession`]) and the middlebox ([`relay`]).

mod driver;
mod error;
mod memory;
mod pipe;
mod relay;
mod session;

pub use error::PathError;
pub use levada_channel::contexts::{
    Action, AnswerPart, Context, ContextError, Direction, Hop, HopPolicy, HopSetup, HopTickets,
    Inspector, Kem, Party, Path, PathEvent, PathPolicy, PathSessions, PathTickets, Piece, Purpose,
    Received, Relay, Right, Role, ServerPaths,
};
pub use relay::{Dialed, relay};
pub(crate) use session::accept_path_within;
pub use session::{PathSession, accept_path, connect_path};
