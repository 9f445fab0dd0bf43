//! Errors of sessions with middleboxes.

use std::fmt;

use thiserror::Error;

/// A party of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client.
    Client,
    /// A middlebox, by its number; the first next to the client is 1.
    Middlebox(u8),
    /// The server.
    Server,
}

impl Role {
    /// The party at this place of a path of `hops` middleboxes; 0 is the client.
    pub fn at(place: u8, hops: usize) -> Self {
        match place {
            0 => Self::Client,
            hop if usize::from(hop) <= hops => Self::Middlebox(hop),
            _ => Self::Server,
        }
    }

    /// The last of `hops` middleboxes, next to the server.
    pub(crate) fn last(hops: usize) -> Self {
        Self::Middlebox(u8::try_from(hops).unwrap_or(u8::MAX))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("the client"),
            Self::Middlebox(hop) => write!(f, "middlebox {hop}"),
            Self::Server => f.write_str("the server"),
        }
    }
}

/// Why a session with middleboxes ended. Every one of them ends it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextError {
    /// TLS failed, or a record of TLS.
    #[error(transparent)]
    Tls(#[from] levada_channel::Error),
    /// A frame that was received breaks a rule.
    #[error("{error} ({frame}{} from {from})", in_context(*.context))]
    Frame {
        /// The rule.
        error: Box<Self>,
        /// The type of the frame.
        frame: &'static str,
        /// The context of a record.
        context: Option<u8>,
        /// The neighbour that sent it, or passed it on.
        from: Role,
    },
    /// A frame of the wrong form.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// A frame that is not expected now.
    #[error("out of order: {0}")]
    Unexpected(&'static str),
    /// A signature, tag or ciphertext that its supposed author did not make.
    #[error("forged: {what}{}", place(*.hop, *.context))]
    Forged {
        /// What was forged.
        what: &'static str,
        /// The middlebox that it names as its author, from 1; 0 for an endpoint.
        hop: Option<u8>,
        /// The context.
        context: Option<u8>,
    },
    /// A middlebox sent a one-time key to which nothing can be sealed, such as a point of small
    /// order (RFC 7748 section 6.1).
    #[error("malformed: the one-time key of middlebox {0}")]
    BadKey(u8),
    /// A middlebox did what it has no right to do.
    #[error("middlebox {hop} has no right to {what} in context {context}")]
    NoRight {
        /// The middlebox, from 1.
        hop: u8,
        /// The context.
        context: u8,
        /// What it did.
        what: &'static str,
    },
    /// An audit shows that records were left out, added or changed on the way.
    #[error("the audit of {} does not fit what arrived: records were left out, added or changed behind it", party(*.0))]
    Audit(u8),
    /// This side's policy refuses the path.
    #[error("refused: {0}")]
    Refused(String),
    /// Another party of the path ended the session. Nothing authenticates this.
    #[error("{} ended the session: {}", party(*.hop), alert_name(*.code))]
    Alert {
        /// Its code.
        code: u8,
        /// The party that claims to have sent it; 0 for an endpoint.
        hop: u8,
    },
    /// The session ended before it was complete.
    #[error("cut off: {0}")]
    Truncated(&'static str),
    /// A party exceeded a limit.
    #[error("over a limit: {0}")]
    Flood(&'static str),
    /// The handshake took too long, or a neighbour is silent.
    #[error("timed out: {from} did not send {what}")]
    Timeout {
        /// What this side waited for.
        what: &'static str,
        /// The party that should have sent it. Another one on the way may have withheld it.
        from: Role,
    },
    /// The call does not fit the state of the session.
    #[error("not possible now: {0}")]
    State(&'static str),
    /// The session has ended.
    #[error("the session has ended")]
    Closed,
}

impl ContextError {
    /// The code of the ALERT that tells the other parties; None if they have ended the session
    /// themselves.
    pub(crate) fn alert_code(&self) -> Option<u8> {
        Some(match self {
            Self::Frame { error, .. } => return error.alert_code(),
            Self::Refused(_) => 2,
            Self::Alert { code: 3, hop: 0 } => 3,
            Self::Alert { .. } | Self::Closed => return None,
            Self::Timeout { .. } => 4,
            Self::Tls(levada_channel::Error::Internal(_)) | Self::State(_) => 6,
            _ => 1,
        })
    }

    /// The error without the frame that it was found in.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Frame { error, .. } => error,
            other => other,
        }
    }

    pub(crate) fn forged(what: &'static str) -> Self {
        Self::Forged { what, hop: None, context: None }
    }

    pub(crate) fn forged_by(what: &'static str, hop: u8) -> Self {
        Self::Forged { what, hop: Some(hop), context: None }
    }
}

fn party(hop: u8) -> String {
    if hop == 0 { "an endpoint".to_owned() } else { format!("middlebox {hop}") }
}

fn in_context(context: Option<u8>) -> String {
    context.map_or_else(String::new, |context| format!(" in context {context}"))
}

fn place(hop: Option<u8>, context: Option<u8>) -> String {
    let mut text = String::new();
    if let Some(hop) = hop {
        text.push_str(", as if from ");
        text.push_str(&party(hop));
    }
    if context.is_some() {
        text.push(',');
        text.push_str(&in_context(context));
    }
    text
}

/// The names of ALERT's codes.
fn alert_name(code: u8) -> &'static str {
    match code {
        1 => "something was malformed",
        2 => "its policy refuses this",
        3 => "the session could not be resumed",
        4 => "a party next to it is unreachable",
        5 => "it is busy",
        6 => "an internal error",
        _ => "for an unknown reason",
    }
}
