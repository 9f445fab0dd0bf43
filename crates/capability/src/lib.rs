//! Capabilities: mint, narrow, pass on, verify, revoke; and invitations. Nothing here does I/O.
//!
//! A capability is a chain of links (Capone (secure channels and capabilities), section
//! "Capability Service"). A node [`mint`]s the first link under a root secret of the session,
//! which it keeps. Each holder may [`Capability::grant`] a narrower link to another identity,
//! with no node at hand. The last holder [`Capability::present`]s the chain with a proof of its
//! secret, and the node checks it by [`verify`]. By an [`exchange`] one asks another for a
//! capability through a service that neither trusts.
//!
//! `docs/protocol.md` gives the bytes.

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
mod verify;

pub use capability::Capability;
pub use chain::Chain;
pub use error::{
    CapabilityError, ChainError, GrantError, InvitationError, LinkError, Refused, Widening,
};
pub use grant::{Narrowing, mint};
pub use id::{IdError, LinkId, SessionId};
pub use invitation::Invitation;
pub use link::{LinkBody, Secret};
pub use present::{Operation, Presented};
pub use rights::{Rights, RightsError};
pub use verify::{Context, Verified, verify};
