//! Who is on this network: nodes announce themselves by DNS-SD over multicast DNS (RFC 6762, RFC 6763),
//! and whoever looks for them asks anew each time.
//!
//! Nothing that an announcement says is trusted: a name does not vouch for a key, and an address is a hint.
//! What comes from the network is bounded in number and length, checked, and otherwise dropped.

mod address;
mod announce;
mod browse;
mod error;
mod multicast;
mod neighbour;
mod records;
pub mod testing;
mod txt;

pub use announce::{Announcement, Announcer};
pub use browse::{LOOK, find, look};
pub use error::DiscoveryError;
pub use multicast::{Usable, usable};
pub use neighbour::{MAX_ADDRESSES, MAX_NEIGHBOURS, Neighbour, Seen, Wanted};

/// The service type of nodes, in the domain of multicast DNS (RFC 6763 section 7).
pub(crate) const SERVICE: &str = "_levada._tcp.local.";
