//! Runs the state machines on tokio, over streams of sessions.
//!
//! Each pair of parties has two streams: one for control messages, one for chunks. One task owns
//! the state machine; each stream has a task for each direction. Disk and hashing are in the
//! blocking pool.

mod cache;
mod events;
mod getting;
mod limit;
mod link;
mod links;
mod meeting;
mod pairing;
mod rate;
mod sharing;
mod status;
mod store;
mod stored;

pub use events::{GetError, Progress};
pub use getting::{Get, Got};
pub use link::Link;
pub use meeting::{Dial, DialFuture, Network};
pub use sharing::{Share, ShareOptions};
pub use status::ShareStatus;
