//! What happens to a driver, and what it reports.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use levada_core::Identity;
use levada_session::{SessionError, StreamError};
use thiserror::Error;
use tokio::sync::oneshot;

use super::link::Link;
use super::status::ShareStatus;
use crate::PeerId;
use crate::content::ContentError;
use crate::message::{Malformed, Message};

/// Something that a task reports to the one that owns the state machine.
pub(super) enum Event {
    Message(PeerId, Message),
    /// A chunk has come; `Err` if it could not be stored although it was right.
    Chunk {
        from: PeerId,
        index: u32,
        bytes: u64,
        stored: Result<bool, ContentError>,
        /// Only at a coordinator: its bytes.
        content: Bytes,
    },
    /// A chunk was read from the source for the cache.
    Loaded(u32, Result<Bytes, ContentError>),
    /// A chunk has left, or could not be read.
    Sent {
        to: PeerId,
        index: u32,
        bytes: u64,
        read: Result<(), ContentError>,
    },
    /// A connection to a neighbour is there.
    Linked(PeerId, Link),
    /// An incoming connection of a peer with this identity.
    Incoming(Identity, Link),
    /// A link with this serial number has ended; 0 if it was never there.
    Unlinked(PeerId, u64),
    /// A peer joins a share, until the other end of `alive` is dropped.
    Joined {
        identity: Identity,
        link: Link,
        /// One stream is of a connection over QUIC.
        over_udp: bool,
        alive: oneshot::Sender<()>,
    },
    /// Somewhere the state of a share is shown.
    Status(oneshot::Sender<ShareStatus>),
}

/// What a download reports while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A chunk has come.
    Chunk {
        /// Its number.
        index: u32,
        /// Its length in bytes.
        bytes: u64,
        /// The peer that has sent it; None for the coordinator.
        from: Option<Identity>,
        /// The time from its request, or the acceptance of its offer, until it was verified and
        /// stored.
        took: Duration,
    },
    /// The number of neighbours has changed.
    Neighbours(usize),
    /// A peer has sent a wrong chunk, and is not asked again.
    Wrong(Identity),
    /// All chunks are there.
    Complete,
}

/// Why a download has failed. What was received stays on the disk, except for [`GetError::Content`]
/// of a full disk or the like, after which it can be resumed, too.
#[derive(Debug, Error)]
pub enum GetError {
    /// No party has these chunks any more.
    #[error("{} of the chunks are lost: the source has changed, and no peer has them", .0.iter().map(|run| run.end - run.start).sum::<u32>())]
    Lost(Vec<Range<u32>>),
    /// The coordinator ended the connection.
    #[error(
        "the connection to the coordinator was lost; what was received is kept, try again to resume"
    )]
    CoordinatorLost,
    /// The task that gives the download its name was cut off.
    #[error("it was not finished; what was received is kept, try again")]
    Interrupted,
    /// The coordinator has sent many chunks that are not of the content.
    #[error(
        "the node sends what is not of this content: the ticket was altered, or what it shares has changed"
    )]
    WrongContent,
    /// The coordinator has sent what it may not.
    #[error("the coordinator sent {0}")]
    Malformed(#[from] Malformed),
    /// See [`ContentError`].
    #[error(transparent)]
    Content(#[from] ContentError),
    /// See [`StreamError`].
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// See [`SessionError`].
    #[error(transparent)]
    Session(#[from] SessionError),
}
