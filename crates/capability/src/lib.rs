//! Capabilities (mint, narrow, delegate, verify), invitations and tickets. The crate does no I/O.
//!
//! A capability is a chain of links (Capone (secure channels and capabilities), section
//! "Capability Service"). A node [`mint`]s the first link under the session's root secret, which
//! never leaves it. Each holder may [`Capability::grant`] a narrower link to another identity
//! without contacting the node. The last holder [`Capability::present`]s the chain with a proof of
//! its secret, and the node [`verify`]s it. In an [`exchange`], a requester asks an entity for a
//! capability through a service that neither trusts.
//!
//! `docs/protocol.md` specifies the encodings.

#![forbid(unsafe_code)]

mod capability;
mod chain;
mod error;
pub mod exchange;
mod grant;
mod id;
mod invitation;
mod link;
mod present;
mod reader;
mod rights;
mod text;
mod ticket;
mod verify;

pub use capability::Capability;
pub use chain::{Chain, ChainError, Widening};
pub use error::{CapabilityError, GrantError, InvitationError, TicketError, VerifyError};
pub use grant::{Narrowing, first_secret, mint};
pub use id::{IdError, LinkId, SessionId};
pub use invitation::Invitation;
pub use link::{LinkBody, LinkError, Secret};
pub use present::{Operation, Presented};
pub use rights::{Rights, RightsError};
pub use ticket::{SWARM, Ticket, TicketTerms};
pub use verify::{Context, Verified, verify};
