//! The errors of making, decoding, delegating and verifying capabilities.

use levada_core::wire::Reason;
use levada_core::{Identity, Params, TextError, UnixTime};
use thiserror::Error;

use crate::{Chain, Rights};

/// Why a link cannot be made.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// The parameters of one link are longer than [`Params::MAX_LEN`].
    #[error("the parameters are longer than {} bytes", Params::MAX_LEN)]
    ParamsTooLong,
    /// The link has no uses.
    #[error("a capability has at least one use")]
    NoUses,
    /// The link's running time is zero.
    #[error("a session runs for at least one second")]
    NoTime,
}

/// How a link permits more than the one before it.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Widening {
    /// The link before it lacks the right to distribute.
    #[error("a capability without the right `distribute` cannot be passed on")]
    Distribute,
    /// It has a right that the link before it lacks.
    #[error("its rights are wider than those it is derived from")]
    Rights,
    /// It expires later than the link before it.
    #[error("its expiry is later than that it is derived from")]
    Expiry,
    /// It has more uses than the link before it.
    #[error("it has more uses than what it is derived from")]
    Uses,
    /// Its running time is longer than that of the link before it.
    #[error("its sessions may run for longer than those it is derived from")]
    MaxRun,
    /// It sets a parameter that an earlier link has set, even to the same value.
    #[error("the parameter {0:?} is already set and cannot be changed")]
    Parameter(String),
}

/// Why links and signatures are not a valid chain. Links are counted from 1.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ChainError {
    /// No link, or more than [`Chain::MAX_LINKS`].
    #[error("a capability has 1 to {} links", Chain::MAX_LINKS)]
    Length,
    /// The links have more than [`Chain::MAX_LEN`] bytes.
    #[error("the links of a capability have at most {} bytes", Chain::MAX_LEN)]
    TooLong,
    /// Not one signature of 64 bytes for each link after the first.
    #[error("a capability has one signature for each link after the first")]
    Signatures,
    /// A link that is not in the canonical encoding.
    #[error("the capability is malformed: link {0} cannot be decoded")]
    Malformed(usize),
    /// A link that permits more than the one before it.
    #[error("the capability was widened at link {link}: {how}")]
    Widened {
        /// The link that permits too much.
        link: usize,
        /// How.
        how: Widening,
    },
    /// A link that is not signed by the identity of the link before it.
    #[error("the capability is forged: link {0} is not signed by the holder of the link before it")]
    Signature(usize),
}

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

impl ChainError {
    /// The reason on the wire.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Length | Self::TooLong | Self::Signatures | Self::Malformed(_) => {
                Reason::Malformed
            }
            Self::Widened { .. } | Self::Signature(_) => Reason::Forged,
        }
    }
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
