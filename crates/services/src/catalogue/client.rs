//! The client of the catalogue protocol.

mod maintenance;
mod publish;
mod query;

use std::io::{self, Read, Seek};
use std::time::Duration;

use levada_catalogue::model::{Key, Kind, Published};
use levada_core::wire::catalogue::{
    self as wire, Answer, Cause, Failed, answer::Answer as Response, call::Call as Request,
};
use levada_core::wire::{Granted, decode_within, encode};
use thiserror::Error;
use tokio::time::timeout;

use super::message;
use super::pipe::{PipeError, Receiver, Sender};

/// How long a response may take: the store may be busy with another client's long upload.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long finishing the sending direction may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a request to a catalogue failed.
#[derive(Debug, Error)]
pub enum CatalogueError {
    /// The catalogue refused it.
    #[error("{text}")]
    Failed {
        /// The class of the failure.
        cause: Cause,
        /// The reason that the catalogue sent, in one line.
        text: String,
    },
    /// The connection to the catalogue failed.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// The catalogue ended the session before its response was complete.
    #[error("the catalogue ended the session before its response was complete")]
    Gone,
    /// The catalogue sent a malformed message, or one that does not answer the request.
    #[error("the catalogue sent an unexpected message")]
    Unexpected,
    /// The file with the package could not be read or written.
    #[error("the package: {0}")]
    Package(#[from] io::Error),
}

impl From<Failed> for CatalogueError {
    /// Truncates the text, which comes from another node, to one short line.
    fn from(failed: Failed) -> Self {
        let cause = failed.cause();
        Self::Failed { cause, text: Failed::new(cause, failed.text).text }
    }
}

/// What a package to be published is read from.
pub trait Source: Read + Seek + Send {}
impl<T: Read + Seek + Send> Source for T {}

/// The result of a request that changes the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeOutcome {
    /// False if the catalogue was in the requested state before.
    pub is_new: bool,
    /// The revision of the catalogue after the request.
    pub revision: u64,
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key of the object.
    pub key: Key,
    /// Its newest version; `None` if all are yanked, or if versions were not requested.
    pub newest: Option<Published>,
}

/// What a catalogue answers to a reader who would fetch a package through its swarm.
#[derive(Debug)]
pub struct Admitted {
    /// How many other peers provide the package.
    pub providers: u32,
    /// The BLAKE3 hash of the package, as the catalogue says.
    pub root: [u8; 32],
    /// The first link of a capability for the swarm. `None` if no other peer provides the package,
    /// and the reader will not.
    pub granted: Option<Granted>,
}

/// A session with a catalogue. It has one request at a time.
pub struct CatalogueClient {
    send: Sender,
    receive: Receiver,
}

impl CatalogueClient {
    /// A client of the catalogue that [`super::serve`]s the other end of `pipe`.
    pub fn new((send, receive): (Sender, Receiver)) -> Self {
        Self { send, receive }
    }

    /// Ends the session after the last response.
    pub async fn finish(&mut self) {
        // An error does not matter: all responses have arrived.
        let _ = timeout(CLOSE_TIMEOUT, self.send.finish()).await;
    }

    async fn request(&mut self, request: Request) -> Result<(), CatalogueError> {
        Ok(self.send.send(&encode(&wire::Call { call: Some(request) })).await?)
    }

    /// The next response.
    async fn response(&mut self) -> Result<Response, CatalogueError> {
        let message = timeout(RESPONSE_TIMEOUT, self.receive.receive(wire::MAX_MESSAGE)).await;
        accepted(parse(message.map_err(|_| PipeError::Stalled)??)?)
    }

    /// The next response, without a timeout: for requests that read the whole store, or wait for
    /// changes. The connection detects a lost peer.
    async fn late_response(&mut self) -> Result<Response, CatalogueError> {
        accepted(parse(self.receive.receive(wire::MAX_MESSAGE).await?)?)
    }
}

fn parse(message: Option<Vec<u8>>) -> Result<Response, CatalogueError> {
    let bytes = message.ok_or(CatalogueError::Gone)?;
    let answer = decode_within::<Answer>(&bytes, wire::MAX_MESSAGE);
    answer.ok().and_then(|answer| answer.answer).ok_or(CatalogueError::Unexpected)
}

fn accepted(response: Response) -> Result<Response, CatalogueError> {
    match response {
        Response::Failed(failed) => Err(failed.into()),
        other => Ok(other),
    }
}

fn published(entry: wire::Entry) -> Result<Published, CatalogueError> {
    message::published(entry).map_err(|_| CatalogueError::Unexpected)
}

fn change_outcome(done: wire::Done) -> ChangeOutcome {
    ChangeOutcome { is_new: done.changed, revision: done.revision }
}

fn kind_text(kind: Option<Kind>) -> String {
    kind.map_or_else(String::new, |kind| kind.as_str().to_owned())
}
