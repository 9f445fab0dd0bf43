//! The errors of decoding, delegating and verifying capabilities, and of invitations and tickets.

use levada_core::wire::Reason;
use levada_core::{Identity, TextError, UnixTime};
use thiserror::Error;

use crate::chain::{ChainError, Widening};
use crate::link::LinkError;
use crate::rights::Rights;

/// Why a text, or a node's answer, is not a capability.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CapabilityError {
    /// The text form is wrong.
    #[error("not a capability: {0}")]
    Text(#[from] TextError),
    /// The chain is invalid.
    #[error("{0}")]
    Chain(#[from] ChainError),
    /// The secret is not 32 bytes long.
    #[error("not a capability: a secret has 32 bytes")]
    Secret,
    /// The service name or an address is outside its limits.
    #[error(
        "not a capability: a service name and at most 8 addresses have 1 to 255 bytes each and no control characters"
    )]
    Hints,
}

/// Why a capability cannot be delegated in this way.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum GrantError {
    /// The delegating identity is not the capability's holder.
    #[error("this capability is bound to another identity, {holder}")]
    NotHolder {
        /// The capability's holder.
        holder: Identity,
    },
    /// The new link would permit more than this one.
    #[error("the capability cannot be widened: {0}")]
    Widened(#[from] Widening),
    /// The new link is invalid.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The new chain would be too long, or this one is invalid.
    #[error("{0}")]
    Chain(#[from] ChainError),
}

/// Why a presented capability does not verify.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum VerifyError {
    /// The chain is invalid.
    #[error("{0}")]
    Chain(#[from] ChainError),
    /// The proof is not 32 bytes long.
    #[error("the capability is malformed: a proof has 32 bytes")]
    Malformed,
    /// The capability is for a session of another node.
    #[error("the capability is foreign: it belongs to another node")]
    Foreign,
    /// The peer's identity may not present this capability for this operation.
    #[error("the capability is foreign: it is bound to another identity")]
    NotHolder,
    /// The proof does not match the secret, links, connection or operation.
    #[error("the capability is forged: its proof does not verify")]
    Forged,
    /// The capability lacks the right that the operation needs.
    #[error("the capability does not permit this: it lacks the right to {}", first_name(*.0))]
    Right(Rights),
    /// The right to start has ended.
    #[error("the capability has expired")]
    Expired(UnixTime),
}

impl VerifyError {
    /// The reason on the wire.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Chain(error) => error.reason(),
            Self::Malformed => Reason::Malformed,
            Self::Foreign | Self::NotHolder => Reason::Foreign,
            Self::Forged => Reason::Forged,
            Self::Right(_) => Reason::Denied,
            Self::Expired(_) => Reason::Expired,
        }
    }
}

/// Why a text is not an invitation.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum InvitationError {
    /// The text form is wrong.
    #[error("not an invitation: {0}")]
    Text(#[from] TextError),
    /// The addresses are outside their limits.
    #[error(
        "an invitation has at most 8 addresses, of 1 to 255 bytes each and no control characters"
    )]
    Addresses,
}

/// Why a text or its parts are not a ticket.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum TicketError {
    /// The text form is wrong.
    #[error("not a ticket: {0}")]
    Text(#[from] TextError),
    /// The addresses are outside their limits.
    #[error("a ticket has at most 8 addresses, of 1 to 255 bytes each and no control characters")]
    Addresses,
    /// No peer could exchange it.
    #[error("a ticket is for at least one peer")]
    NoPeers,
}

fn first_name(rights: Rights) -> &'static str {
    rights.names().next().unwrap_or("do anything")
}
