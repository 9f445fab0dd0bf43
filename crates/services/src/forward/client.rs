//! The client's side of the service `forward`, for `levada forward` and for the forwards that a node keeps up.

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

/// Why nothing is carried, or no more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct ForwardError {
    /// The exit code of the command line that says of what kind it is.
    pub code: u8,
    /// One line for a person; empty if it has been said.
    pub text: String,
}

impl ForwardError {
    /// An error with one of the exit codes of the command line.
    pub fn new(code: u8, text: impl Display) -> Self {
        Self { code, text: text.to_string() }
    }

    /// Whether the node refused: there is no such service, or this identity may not.
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

/// What is told of connections that are carried. Lines may have text of other machines in them.
pub trait Report: Send + Sync {
    /// Connections come in there, a line for each address, from now on.
    ///
    /// # Errors
    /// [`ForwardError`] ends it all.
    fn listening(&self, at: &str) -> Result<(), ForwardError>;

    /// One line for a person.
    fn note(&self, line: &str);

    /// Connections are carried, or, for a reason, they are not for the moment.
    fn carries(&self, _why_not: Option<&str>) {}
}

/// Shared by all connections.
pub type Reporter = Arc<dyn Report>;

/// Tells when it is to end: when its sender is dropped.
#[derive(Clone)]
pub struct Stop(watch::Receiver<()>);

impl Stop {
    /// What is dropped to end it, and what waits for that.
    pub fn new() -> (watch::Sender<()>, Self) {
        let (sender, receiver) = watch::channel(());
        (sender, Self(receiver))
    }

    /// Waits until the sender is dropped.
    pub async fn stopped(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
