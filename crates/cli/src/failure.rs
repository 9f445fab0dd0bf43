//! Why a command failed: one line of text, and the exit code.

use levada_capability::{CapabilityError, GrantError, InvitationError, TicketError};
use levada_client::ClientError;
use levada_client::control::ControlError;
use levada_config::ConfigError;
use levada_core::ParamsError;
use levada_core::printable::escape;
use levada_database::DatabaseError;
use levada_home::HomeError;
use levada_services::forward::client::ForwardError;
use std::fmt::Display;
use std::io;

/// The exit code of a command, or why it failed.
pub type Outcome = Result<u8, Failure>;

/// The answer is no.
pub const NO: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// An error on this machine.
pub const LOCAL: u8 = 120;
/// Not permitted.
pub const DENIED: u8 = 121;
/// The peer does not answer.
pub const UNREACHABLE: u8 = 122;
/// The peer broke the protocol.
pub const PROTOCOL: u8 = 123;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    text: String,
    is_of_node: bool,
}

impl Failure {
    /// A failure with one of the documented exit codes.
    pub fn new(code: u8, text: impl Display) -> Self {
        Self { code, text: text.to_string(), is_of_node: false }
    }

    /// The same, as a state of one node: the others of the same catalogue may succeed.
    pub fn of_node(self) -> Self {
        Self { is_of_node: true, ..self }
    }

    /// Whether another node of the same catalogue may succeed.
    pub fn is_of_node(&self) -> bool {
        self.is_of_node
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// The line that is printed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error on this machine.
    pub fn local(text: impl Display) -> Self {
        Self::new(LOCAL, text)
    }

    /// Not permitted.
    pub fn denied(text: impl Display) -> Self {
        Self::new(DENIED, text)
    }

    /// Adds `action` and `path` to an error of the operating system.
    pub fn file(action: &str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("cannot {action} {}", path.display());
        move |error| Self::local(format!("{what}: {error}"))
    }

    /// A write to standard output failed. A closed pipe is not an error: the exit code is 0.
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(0, ""),
            _ => Self::local(format!("cannot write to standard output: {error}")),
        }
    }
}

macro_rules! from {
    ($($error:ty => $code:expr),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let code: fn(&$error) -> u8 = $code;
                Self::new(code(&error), &error)
            }
        }
    )*};
}

from! {
    HomeError => HomeError::exit_code,
    ConfigError => |_| LOCAL,
    DatabaseError => |_| LOCAL,
    ControlError => ControlError::exit_code,
    ParamsError => |_| USAGE,
    CapabilityError => |_| USAGE,
    GrantError => |_| DENIED,
    InvitationError => |_| USAGE,
    TicketError => |_| USAGE,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let is_of_node = error.may_have_moved();
        Self { is_of_node, ..Self::new(error.exit_code(), &error) }
    }
}

impl From<ForwardError> for Failure {
    fn from(error: ForwardError) -> Self {
        // It may contain text from another machine.
        Self::new(error.code, escape(&error.text))
    }
}

impl From<Failure> for ForwardError {
    fn from(failure: Failure) -> Self {
        Self::new(failure.code, failure.text)
    }
}
