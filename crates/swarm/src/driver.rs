//! Runs the state machines on tokio, over streams of sessions.
//!
//! Each pair of parties has two streams: one for control messages, one for chunks. One task owns the state machine; each stream has a task for
//! each direction. Disk and hashing are in the blocking pool.

mod cache;
mod events;
mod getting;
mod limit;
mod links;
mod meeting;
mod pairing;
mod rate;
mod sharing;
mod store;

pub use events::{GetError, Progress};
pub use getting::{Get, Got};
pub use links::Link;
pub use meeting::{Dial, DialFuture, Network};
pub use sharing::{Share, ShareOptions, ShareStatus};
