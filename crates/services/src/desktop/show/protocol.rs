//! The protocol between a supervisor and its clients: JSON objects, one per line, over a Unix
//! socket that only this user can access.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::Right;

/// The longest line, in bytes; it may contain a capability's text.
const MAX_LINE: u64 = 2 * 1024 * 1024;
/// How long the other side may take to send or accept a line.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The program that a supervisor starts, and where it is shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramSpec {
    /// Its name here; if `None`, a free name made from the program's.
    pub name: Option<String>,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// The right to show it.
    pub right: Right,
    /// Whether the clipboard is shared.
    pub clipboard: bool,
}

/// A request to a supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Return the [`Status`].
    Status,
    /// Return the [`Status`], and then every new [`State`] until the last.
    Watch,
    /// Show the program by `right`, or by the right of the last time.
    Show {
        /// The right to show it.
        #[serde(rename = "at")]
        right: Option<Right>,
    },
    /// Remove the program from the screen.
    Hide,
    /// End the program.
    Stop,
}

/// The answer of a supervisor, and its first message after [`Request::Watch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The program's name here.
    pub name: String,
    /// Its state.
    pub state: State,
}

/// The state of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum State {
    /// Not shown yet.
    Starting,
    /// On a screen.
    Shown {
        /// The service that shows it.
        at: String,
    },
    /// The connection is lost, and will be retried.
    Waiting {
        /// The service that shows it.
        at: String,
        /// The error.
        why: String,
    },
    /// On no screen until [`Request::Show`].
    Hidden {
        /// The reason, unless it was [`Request::Hide`].
        why: Option<String>,
        /// The exit code for a command that follows the program.
        code: u8,
    },
    /// The program has ended.
    Ended {
        /// Its exit code.
        code: u8,
        /// The last line that it printed.
        last_line: String,
    },
    /// The program could not be started, or its screen has failed.
    Failed {
        /// The error.
        why: String,
        /// The exit code for a command that follows the program.
        code: u8,
    },
}

impl State {
    /// The word for the list of programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Shown { .. } => "shown",
            Self::Waiting { .. } => "waiting",
            Self::Hidden { .. } => "hidden",
            Self::Ended { .. } => "ended",
            Self::Failed { .. } => "lost",
        }
    }

    /// The service that shows it, or will again.
    pub fn at(&self) -> Option<&str> {
        match self {
            Self::Shown { at } | Self::Waiting { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Whether no state follows.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Failed { .. })
    }
}

/// A connection of the protocol.
pub struct ControlConnection {
    stream: BufReader<UnixStream>,
    /// A line that was received partially.
    partial: Zeroizing<Vec<u8>>,
}

impl ControlConnection {
    /// A connection over `stream`.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream), partial: Zeroizing::new(Vec::new()) }
    }

    /// Sends one message within `TIMEOUT`.
    ///
    /// # Errors
    /// An error of the socket, or [`io::ErrorKind::TimedOut`].
    pub async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = Zeroizing::new(serde_json::to_vec(message)?);
        line.push(b'\n');
        timeout(TIMEOUT, self.stream.get_mut().write_all(&line)).await?
    }

    /// Receives the next message; `None` once the other side has closed. Cancel-safe: a line that
    /// was received partially is kept.
    ///
    /// # Errors
    /// An error of the socket, or [`io::ErrorKind::InvalidData`] for an invalid message.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let room = MAX_LINE.saturating_sub(self.partial.len() as u64);
        (&mut self.stream).take(room).read_until(b'\n', &mut self.partial).await?;
        if self.partial.is_empty() {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.partial);
        Ok(Some(serde_json::from_slice(&line)?))
    }

    /// As [`Self::receive`], within `TIMEOUT`.
    ///
    /// # Errors
    /// As [`Self::receive`]; also [`io::ErrorKind::UnexpectedEof`] and [`io::ErrorKind::TimedOut`].
    pub async fn expect<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        timeout(TIMEOUT, self.receive()).await??.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl fmt::Debug for ControlConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a socket")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Right {
        Right::Request { node: "well".into(), service: "screen".into() }
    }

    #[test]
    fn messages_survive_encoding_and_decoding() {
        let spec = ProgramSpec {
            name: None,
            program: vec!["xterm".into(), "-e".into(), "a b".into()],
            right: right(),
            clipboard: true,
        };
        let read: ProgramSpec =
            serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!((read.program, read.clipboard), (spec.program, spec.clipboard));
        assert_eq!(read.right.label(), spec.right.label());
        let show = Request::Show { right: Some(right()) };
        let text = serde_json::to_string(&show).unwrap();
        assert_eq!(text, r#"{"do":"show","at":"well/screen"}"#);
        for state in [
            State::Starting,
            State::Waiting { at: "a/b".into(), why: "cut".into() },
            State::Hidden { why: None, code: 0 },
            State::Ended { code: 3, last_line: String::new() },
        ] {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state, "{text}");
        }
    }

    #[test]
    fn arbitrary_lines_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = serde_json::from_slice::<ProgramSpec>(bytes);
            let _ = serde_json::from_slice::<Request>(bytes);
            let _ = serde_json::from_slice::<State>(bytes);
        });
    }

    #[tokio::test]
    async fn keeps_a_partial_line_after_cancellation() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut connection = ControlConnection::new(near);
        far.write_all(br#"{"is":"#).await.unwrap();
        let short = Duration::from_millis(20);
        assert!(timeout(short, connection.receive::<State>()).await.is_err());
        far.write_all(b"\"starting\"}\nnonsense\n").await.unwrap();
        assert_eq!(connection.receive().await.unwrap(), Some(State::Starting));
        assert!(connection.receive::<State>().await.is_err());
        drop(far);
        assert_eq!(connection.receive::<State>().await.unwrap(), None);
    }
}
