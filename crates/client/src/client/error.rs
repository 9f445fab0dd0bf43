//! The errors of the client, and their exit codes.

use std::fmt::Display;

use levada_capability::{CapabilityError, GrantError};
use levada_core::wire::{Reason, Refusal};
use levada_database::DatabaseError as StoreError;
use levada_session::{ChannelError, SessionError, StreamError};
use thiserror::Error;

use levada_home::known::{FollowError, NameError, PinError, RenameError};

/// Why an operation at another node did not succeed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The service or object does not exist.
    #[error("{0}")]
    No(String),
    /// An argument is malformed or has no meaning here.
    #[error("{0}")]
    Usage(String),
    /// An error of this machine, such as of a file or a key.
    #[error("{0}")]
    Local(String),
    /// Not permitted, by the node or by this home.
    #[error("denied: {0}")]
    Denied(String),
    /// Only nodes with other keys answered. Nothing of this identity was sent to them.
    #[error("unreachable: {0}")]
    OtherKey(String),
    /// No address answered.
    #[error("unreachable: {0}")]
    NoAnswer(String),
    /// The node stopped answering, or cannot serve now.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The peer broke the protocol or cut the connection.
    #[error("protocol: {0}")]
    Protocol(String),
}

impl ClientError {
    /// The exit code of the command line: 1 no, 2 usage, 120 local, 121 denied, 122 unreachable,
    /// 123 protocol.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::No(_) => 1,
            Self::Usage(_) => 2,
            Self::Local(_) => 120,
            Self::Denied(_) => 121,
            Self::NoAnswer(_) | Self::Unreachable(_) | Self::OtherKey(_) => 122,
            Self::Protocol(_) => 123,
        }
    }

    /// Whether the refusal is permanent: a retry is refused, too. All other errors may be
    /// temporary.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::No(_) | Self::Usage(_) | Self::Denied(_))
    }

    /// Returns true if the node was not reached, or has stopped answering.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::NoAnswer(_) | Self::Unreachable(_) | Self::OtherKey(_))
    }

    /// Whether the node may have another address now: another node answered, or none.
    pub fn may_have_moved(&self) -> bool {
        self.is_unreachable() || matches!(self, Self::Protocol(_))
    }

    /// An error of this machine.
    pub fn local(error: impl Display) -> Self {
        Self::Local(error.to_string())
    }

    /// A wrong argument.
    pub fn usage(error: impl Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// The error for a stream that was reset with `code`, which is the number of a [`Reason`].
    pub fn reset(code: u64) -> Self {
        let reason = i32::try_from(code).ok().and_then(|code| Reason::try_from(code).ok());
        match reason {
            Some(Reason::Revoked) => Self::Denied("the capability was revoked".into()),
            Some(Reason::Terminated) => Self::Denied("the session was terminated".into()),
            Some(Reason::Expired) => {
                Self::Denied("the session reached its maximum run time (--max-run)".into())
            }
            Some(Reason::Denied) => Self::Denied("the node ended the session".into()),
            Some(Reason::Failed) => Self::Unreachable("the node is stopping".into()),
            _ => Self::Protocol("the peer reset the stream of the session".into()),
        }
    }
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        // The text of another machine is shown on a terminal: one short line without control
        // characters.
        let refusal = Refusal::new(refusal.reason(), refusal.text);
        match refusal.reason() {
            Reason::Unknown => Self::No(refusal.text),
            Reason::Busy => Self::Unreachable(refusal.text),
            Reason::Failed => Self::Local(format!("the node failed: {}", refusal.text)),
            _ => Self::Denied(refusal.text),
        }
    }
}

impl From<SessionError> for ClientError {
    fn from(error: SessionError) -> Self {
        let error = match error {
            SessionError::ClosedByPeer { code, reason } => {
                let reason = Refusal::new(Reason::Unspecified, reason).text;
                SessionError::ClosedByPeer { code, reason }
            }
            other => other,
        };
        match error {
            SessionError::Transport(_) => Self::Unreachable(error.to_string()),
            // A peer that stops answering does not violate the protocol.
            SessionError::Channel(ChannelError::Idle | ChannelError::HandshakeTimeout) => {
                Self::Unreachable(error.to_string())
            }
            SessionError::WrongPeer { .. } => {
                Self::OtherKey(format!("{error}; nothing was sent to it"))
            }
            SessionError::ClosedByPeer { code, reason } if code == Reason::Denied.close_code() => {
                Self::Denied(reason)
            }
            SessionError::ClosedByPeer { reason, .. } if !reason.is_empty() => {
                Self::Unreachable(format!("the node closed the connection: {reason}"))
            }
            other => Self::Protocol(other.to_string()),
        }
    }
}

impl From<StreamError> for ClientError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Reset(code) => Self::reset(code),
            StreamError::Connection(error) => error.into(),
            other => Self::Protocol(other.to_string()),
        }
    }
}

impl From<CapabilityError> for ClientError {
    fn from(error: CapabilityError) -> Self {
        Self::Protocol(format!("the node's answer has no valid capability: {error}"))
    }
}

impl From<GrantError> for ClientError {
    fn from(error: GrantError) -> Self {
        Self::Denied(error.to_string())
    }
}

impl From<StoreError> for ClientError {
    fn from(error: StoreError) -> Self {
        Self::local(error)
    }
}

impl From<NameError> for ClientError {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Store(error) => error.into(),
            unknown => Self::usage(unknown),
        }
    }
}

impl From<PinError> for ClientError {
    fn from(error: PinError) -> Self {
        match error {
            PinError::Store(error) => error.into(),
            refused => Self::Denied(refused.to_string()),
        }
    }
}

impl From<RenameError> for ClientError {
    fn from(error: RenameError) -> Self {
        match error {
            RenameError::Store(error) => error.into(),
            unknown @ RenameError::Unknown(_) => Self::usage(unknown),
            taken @ RenameError::Taken { .. } => Self::Denied(taken.to_string()),
        }
    }
}

impl From<FollowError> for ClientError {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::Store(error) => error.into(),
            refused => Self::Denied(refused.to_string()),
        }
    }
}
