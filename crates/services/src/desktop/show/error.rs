//! Why a program is not shown.

use std::fmt::Display;
use std::io;
use std::path::Path;

use levada_client::ClientError;
use levada_home::HomeError;
use thiserror::Error;

/// Why a program is not shown, or a command about it failed.
#[derive(Debug, Error)]
pub enum ShowError {
    /// An operation at the node failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The home cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// No program of this name runs here.
    #[error("no program `{0}` runs here; see `levada show --list`")]
    Unknown(String),
    /// The background process of the program with this name was killed.
    #[error(
        "the background process of `{0}` was killed, and the program with it; `levada show --stop {0}` frees the name"
    )]
    Killed(String),
    /// Another program has this name.
    #[error(
        "a program is already called `{0}`: choose another --name, or end that program with `levada show --stop {0}`"
    )]
    Taken(String),
    /// An error of this machine.
    #[error("{0}")]
    Local(String),
    /// The node, or its xpra, does not respond.
    #[error("{0}")]
    Unreachable(String),
    /// The node violated the protocol.
    #[error("{0}")]
    Protocol(String),
}

impl ShowError {
    /// The exit code of the command line: 1 no, 2 usage, 120 local, 121 denied, 122 unreachable,
    /// 123 protocol.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Client(error) => error.exit_code(),
            Self::Home(error) => error.exit_code(),
            Self::Unknown(_) | Self::Killed(_) => 1,
            Self::Taken(_) | Self::Local(_) => 120,
            Self::Unreachable(_) => 122,
            Self::Protocol(_) => 123,
        }
    }

    /// Whether a retry is refused, too.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_refusal())
    }

    pub(super) fn local(error: impl Display) -> Self {
        Self::Local(error.to_string())
    }

    /// Adds `action` and `path` to an error of the operating system.
    pub(super) fn file(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("cannot {action} {}", path.display());
        move |error| Self::Local(format!("{what}: {error}"))
    }
}
