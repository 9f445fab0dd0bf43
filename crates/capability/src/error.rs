//! What can be wrong with a capability, at each of the places where one is looked at.

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
    /// A link that could never be used.
    #[error("a capability has at least one use")]
    NoUses,
    /// A link whose session would end at once.
    #[error("a session runs for at least one second")]
    NoTime,
}

/// How a link permits more than the one before it.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Widening {
    /// The link before it may not be passed on.
    #[error("a capability without the right `distribute` cannot be passed on")]
    Distribute,
    /// It has a right that the link before it has not.
    #[error("its rights are wider than those it is derived from")]
    Rights,
    /// It expires later than the link before it.
    #[error("its expiry is later than that it is derived from")]
    Expiry,
    /// It has more uses than the link before it.
    #[error("it has more uses than what it is derived from")]
    Uses,
    /// It may run for longer than the link before it.
    #[error("its sessions may run for longer than those it is derived from")]
    MaxRun,
    /// It sets a parameter that a link before it has set, be it to the same value.
    #[error("the parameter {0:?} is already set and cannot be changed")]
    Parameter(String),
}

/// Why links and signatures are no chain. Links are counted from 1.
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
    /// A link that is not in the one encoding.
    #[error("the capability is garbled: link {0} is malformed")]
    Malformed(usize),
    /// A link that permits more than the one before it.
    #[error("the capability was widened at link {link}: {how}")]
    Widened {
        /// The link that permits too much.
        link: usize,
        /// In what respect.
        how: Widening,
    },
    /// A link that is not signed by the identity of the link before it.
    #[error("the capability is forged: link {0} is not signed by who is said to have passed it on")]
    Signature(usize),
}

/// Why a text, or what a node answered, is no capability.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CapabilityError {
    /// The text form is wrong.
    #[error("not a capability: {0}")]
    Text(#[from] TextError),
    /// The links do not hold.
    #[error("{0}")]
    Chain(#[from] ChainError),
    /// The secret has not 32 bytes.
    #[error("not a capability: a secret has 32 bytes")]
    Secret,
    /// Service name or addresses are outside their bounds.
    #[error(
        "not a capability: a service name and at most 8 addresses have 1 to 255 bytes each and no control characters"
    )]
    Hints,
}

/// Why a capability cannot be passed on in this way.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum GrantError {
    /// The capability is bound to another identity than the one that passes it on.
    #[error("this capability is bound to another identity, {holder}")]
    NotMine {
        /// Who holds it.
        holder: Identity,
    },
    /// The new link would permit more than this one.
    #[error("the capability cannot be widened: {0}")]
    Widened(#[from] Widening),
    /// The new link cannot be made.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The new chain would be too long, or this one does not hold.
    #[error("{0}")]
    Chain(#[from] ChainError),
}

/// Why a node refused a presented capability.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The links do not hold.
    #[error("{0}")]
    Chain(#[from] ChainError),
    /// The proof has not 32 bytes.
    #[error("the capability is garbled: a proof has 32 bytes")]
    Malformed,
    /// The capability is for a session of another node.
    #[error("the capability is foreign: it belongs to another node")]
    Foreign,
    /// The identity of this connection is not one that may present the capability.
    #[error("the capability is foreign: it is bound to another identity")]
    NotHolder,
    /// Secret, links, connection or operation are not those of the proof.
    #[error("the capability is forged: its secret does not hold")]
    Forged,
    /// The capability lacks the right that the operation needs.
    #[error("the capability does not permit this: it lacks the right to {}", first_name(*.0))]
    Right(Rights),
    /// The right to start has ended.
    #[error("the capability has expired")]
    Expired(UnixTime),
}

impl ChainError {
    /// The reason to give on the wire.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Length | Self::TooLong | Self::Signatures | Self::Malformed(_) => {
                Reason::Malformed
            }
            Self::Widened { .. } | Self::Signature(_) => Reason::Forged,
        }
    }
}

impl Refused {
    /// The reason to give on the wire.
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

/// Why a text is no invitation.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum InvitationError {
    /// The text form is wrong.
    #[error("not an invitation: {0}")]
    Text(#[from] TextError),
    /// The addresses are outside their bounds.
    #[error(
        "an invitation has at most 8 addresses, of 1 to 255 bytes each and no control characters"
    )]
    Addresses,
}

fn first_name(rights: Rights) -> &'static str {
    rights.names().next().unwrap_or("do anything")
}
