//! The client side of the service `forward`, for `levada forward` and for the forwards in a node's
//! configuration.

mod carry;
mod listeners;
mod plan;
mod reconnect;
mod session;
mod socks;
mod udp;

use std::fmt::Display;
use std::sync::Arc;

use levada_core::ParamsError;
use levada_transport::Traffic;
use thiserror::Error;
use tokio::sync::watch;

use levada_client::ClientError;

pub use plan::{Mode, Plan, Words, listen_address};
pub use reconnect::{Reconnector, Right, carry_one};

/// Exit codes of the command line, see [`ClientError::exit_code`].
const NO: u8 = 1;
const USAGE: u8 = 2;
const LOCAL: u8 = 120;
const DENIED: u8 = 121;
const UNREACHABLE: u8 = 122;
const PROTOCOL: u8 = 123;

/// Why no connections are carried, or none any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct ForwardError {
    /// The exit code of the command line.
    pub code: u8,
    /// One line for the user; empty if it was already reported.
    pub text: String,
}

impl ForwardError {
    /// An error with one of the exit codes of the command line.
    pub fn new(code: u8, text: impl Display) -> Self {
        Self { code, text: text.to_string() }
    }

    /// Whether the node refused: there is no such service, or this identity has no right to it.
    pub fn is_refusal(&self) -> bool {
        [NO, DENIED].contains(&self.code)
    }

    fn local(text: impl Display) -> Self {
        Self::new(LOCAL, text)
    }

    fn denied(text: impl Display) -> Self {
        Self::new(DENIED, text)
    }
}

impl From<ClientError> for ForwardError {
    fn from(error: ClientError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

impl From<ParamsError> for ForwardError {
    fn from(error: ParamsError) -> Self {
        Self::new(USAGE, error)
    }
}

/// Receives the events of a forward. Lines may contain text of other machines.
pub trait Report: Send + Sync {
    /// Connections are accepted at these addresses, one on each line.
    ///
    /// # Errors
    /// A [`ForwardError`] ends the forward.
    fn listening(&self, at: &str) -> Result<(), ForwardError>;

    /// One line for the user.
    fn note(&self, line: &str);

    /// Connections are carried (`None`), or cannot be carried at present, for this reason.
    fn carries(&self, _why_not: Option<&str>) {}

    /// Counts the connections and their bytes.
    fn traffic(&self) -> Option<&Arc<Traffic>> {
        None
    }
}

/// A [`Report`] that all connections share.
pub type Reporter = Arc<dyn Report>;

/// The signal to stop, which is given by dropping its sender.
#[derive(Clone)]
pub struct Stop(watch::Receiver<()>);

impl Stop {
    /// The sender, and the signal that waits for its drop.
    pub fn new() -> (watch::Sender<()>, Self) {
        let (sender, receiver) = watch::channel(());
        (sender, Self(receiver))
    }

    /// Waits until the sender is dropped.
    pub async fn stopped(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
