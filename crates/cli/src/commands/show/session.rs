//! What is said between a keeper and those who ask it: JSON objects, one a line, over a socket that
//! only this user can reach.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::destination::Destination;

/// The longest line, in bytes: a capability's text is a part of it.
const MAX_LINE: u64 = 2 * 1024 * 1024;
/// How long the other side may take for a line that is due.
pub const PROMPT: Duration = Duration::from_secs(10);

/// What a keeper is to do from its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// What it is called; a free name made from the program's if `None`.
    pub name: Option<String>,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Where it is shown.
    pub at: Destination,
    /// Whether the clipboard may pass.
    pub clipboard: bool,
    /// Whoever gives it goes away as soon as the program is seen.
    pub detach: bool,
}

/// What one can ask a keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Its [`Status`].
    Status,
    /// Its [`Status`], and then every new [`State`] until the last.
    Watch,
    /// Show it: there, or where it was shown last.
    Show {
        /// Where.
        at: Option<Destination>,
    },
    /// Take it off the screen.
    Hide,
    /// End it.
    Stop,
}

/// A keeper's answer, and its first words to those who watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What it is called.
    pub name: String,
    /// How it is.
    pub state: State,
}

/// How a program that is kept is at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum State {
    /// Not shown yet.
    Starting,
    /// On a screen.
    Shown {
        /// Where.
        at: String,
    },
    /// The connection is gone; it is tried again.
    Waiting {
        /// Where.
        at: String,
        /// What happened.
        why: String,
    },
    /// On no screen, until somebody asks for it.
    Hidden {
        /// Why, if nobody here asked for it.
        why: Option<String>,
        /// The exit code that says so.
        code: u8,
    },
    /// The program has ended.
    Ended {
        /// Its exit code.
        code: u8,
        /// The last line that it printed.
        said: String,
    },
    /// It could not be started, or its screen has failed.
    Failed {
        /// Why.
        why: String,
        /// The exit code that says so.
        code: u8,
    },
}

impl State {
    /// One word for it.
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

    /// Where it is shown, or will be again.
    pub fn at(&self) -> Option<&str> {
        match self {
            Self::Shown { at } | Self::Waiting { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Nothing comes after it.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Failed { .. })
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Service(place) => serializer.collect_str(place),
            Self::Capability(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One end of such a socket.
pub struct Line {
    stream: BufReader<UnixStream>,
    /// A line of which only a part has come.
    partial: Zeroizing<Vec<u8>>,
}

impl Line {
    /// Speaks over `stream`.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream), partial: Zeroizing::new(Vec::new()) }
    }

    /// Says one thing; the other side has [`PROMPT`] to take it.
    ///
    /// # Errors
    /// What the system says.
    pub async fn say(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = Zeroizing::new(serde_json::to_vec(what)?);
        line.push(b'\n');
        timeout(PROMPT, self.stream.get_mut().write_all(&line)).await?
    }

    /// What the other side says next; `None` once it has gone. If the future is dropped, the part that
    /// came is kept.
    ///
    /// # Errors
    /// What the system says; an error of its own kind for what is no such object.
    pub async fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let room = MAX_LINE.saturating_sub(self.partial.len() as u64);
        (&mut self.stream).take(room).read_until(b'\n', &mut self.partial).await?;
        if self.partial.is_empty() {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.partial);
        Ok(Some(serde_json::from_slice(&line)?))
    }

    /// As [`Self::hear`], of somebody who is due to say something.
    ///
    /// # Errors
    /// As [`Self::hear`]; the other side's end is one, too.
    pub async fn expect<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        timeout(PROMPT, self.hear()).await??.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a socket")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let order = Order {
            name: None,
            program: vec!["xterm".into(), "-e".into(), "a b".into()],
            at: "well/screen".parse().unwrap(),
            clipboard: false,
            detach: true,
        };
        let read: Order = serde_json::from_str(&serde_json::to_string(&order).unwrap()).unwrap();
        assert_eq!((read.program, read.at), (order.program, order.at));
        let show = Request::Show { at: Some("lvcap1abc".parse().unwrap()) };
        let text = serde_json::to_string(&show).unwrap();
        assert_eq!(text, r#"{"do":"show","at":"lvcap1abc"}"#);
        for state in [
            State::Starting,
            State::Waiting { at: "a/b".into(), why: "cut".into() },
            State::Hidden { why: None, code: 0 },
            State::Ended { code: 3, said: String::new() },
        ] {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state, "{text}");
        }
    }

    #[test]
    fn arbitrary_lines_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = serde_json::from_slice::<Order>(bytes);
            let _ = serde_json::from_slice::<Request>(bytes);
            let _ = serde_json::from_slice::<State>(bytes);
        });
    }

    #[tokio::test]
    async fn a_line_goes_on_where_it_was_interrupted() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut line = Line::new(near);
        far.write_all(br#"{"is":"#).await.unwrap();
        let short = Duration::from_millis(20);
        assert!(timeout(short, line.hear::<State>()).await.is_err());
        far.write_all(b"\"starting\"}\nnonsense\n").await.unwrap();
        assert_eq!(line.hear().await.unwrap(), Some(State::Starting));
        assert!(line.hear::<State>().await.is_err());
        drop(far);
        assert_eq!(line.hear::<State>().await.unwrap(), None);
    }
}
