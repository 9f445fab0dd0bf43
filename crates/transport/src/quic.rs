//! QUIC as a transport: one connection carries one bidirectional stream, which is the transport.
//!
//! # What QUIC's TLS proves
//!
//! Nothing. QUIC cannot do without TLS, so each endpoint has a temporary key, and either side
//! accepts any key and any signature of the other. The channel inside the transport authenticates
//! both identities, as it does over TCP, and encrypts once more. QUIC's encryption hides the frames
//! of QUIC from observers who do not take part, and nothing from a party on the path that answers
//! in place of the peer. So whatever is written to a [`Quic`] must be a channel's.
//!
//! # Limits
//!
//! An endpoint answers at most three times the bytes that it received until the address of a peer
//! is validated (RFC 9000 section 8). With more than a few handshakes of unvalidated addresses
//! open, it sends Retry, which needs no memory. Handshakes are bounded in number, in all and for
//! each source, and in time. [`QuicOptions`] has the numbers.

mod admission;
mod bind;
mod config;
mod congestion;
mod endpoint;
mod socket;
mod stream;

pub use bind::bind;
pub use config::{ALPN, Congestion, QuicOptions};
pub use endpoint::{Endpoint, QuicListener};
pub use stream::Quic;
