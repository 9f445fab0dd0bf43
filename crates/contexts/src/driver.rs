//! Sessions with middleboxes over transports: the endpoints ([`PathSession`]) and the middlebox
//! ([`relay`]).

mod middlebox;
mod path_error;
mod session;
mod task;

pub use middlebox::{Dialed, relay};
pub use path_error::PathError;
pub use session::{PathSession, accept_incoming, accept_path, connect_path, is_path};

use std::time::Duration;

/// The time limit for a transport to accept the last bytes, and for the peer to end it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of rounds in one poll before a driver yields: with the delivered bytes of a
/// round, other sessions wait for at most 128 KiB of records, of which a peer may make some
/// thousands.
const ROUNDS: usize = 4;
