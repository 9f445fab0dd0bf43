//! Discovery of nodes on the local network: announcement and browsing by DNS-SD over multicast DNS
//! (RFC 6762, RFC 6763).
//!
//! Announcements are unauthenticated: a name does not vouch for a key, and an address is a hint.
//! Input from the network is validated and bounded in number and length; invalid input is dropped.

mod address;
mod announce;
mod browse;
mod error;
mod multicast;
mod neighbour;
mod records;
pub mod testing;
mod txt;

pub use announce::Announcer;
pub use browse::{BROWSE_TIME, browse, find};
pub use error::DiscoveryError;
pub use multicast::{Interface, usable_interfaces};
pub use neighbour::{BrowseResult, MAX_ADDRESSES, MAX_NEIGHBOURS, Neighbour, Targets};
pub use records::Announcement;

/// The service type of nodes, in the domain of multicast DNS (RFC 6763 section 7).
pub(crate) const SERVICE: &str = "_levada._tcp.local.";
