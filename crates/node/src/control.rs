//! The control socket: how the command line speaks to the node of its own home. One JSON object a
//! line: a request, then the answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use levada_client::home::Home;

mod revoke;
mod serve;
pub(crate) use serve::{bind, serve};

/// The longest request or answer, in bytes.
const MAX_LINE: u64 = 16 * 1024 * 1024;

/// What can be asked of the running node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Who it is, where it listens, what it offers.
    Status,
    /// The newest sessions.
    Sessions {
        /// At most so many.
        limit: u32,
    },
    /// The newest entries of the audit log.
    Log {
        /// At most so many.
        limit: u32,
    },
    /// End gracefully.
    Stop,
    /// Make an invitation.
    Invite {
        /// For one service; for all if `None`.
        service: Option<String>,
        /// The name under which this home is to know the guest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Seconds until it ends.
        expires_secs: u64,
        /// Where the node is, for who is invited, before what the node knows itself: `host:port` each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        addresses: Vec<String>,
    },
    /// Revoke the root of a session, or a link of a capability, and all derived from it.
    RevokeId {
        /// The id of one or the other, in hexadecimal, or its beginning.
        id: String,
    },
    /// Take back what invitations gave an identity.
    Disallow {
        /// The identity, its beginning, or a name that is pinned here.
        identity: String,
    },
    /// Write a consistent copy of the node's database to a file.
    Snapshot {
        /// Where to.
        to: PathBuf,
    },
    /// Write a consistent copy of the node's catalogue into an empty folder; `kept` says whether it keeps one.
    BackUpCatalogue {
        /// The folder.
        to: PathBuf,
    },
    /// Take over identity, configuration and databases from a folder, then start again.
    Restore {
        /// The folder with the unpacked backup.
        from: PathBuf,
    },
    /// Replace the node's key; everything that names the old one ends.
    Rotate {
        /// The ids of sessions at other nodes that go on, though the old key requested them for others.
        #[serde(default)]
        keep: Vec<String>,
    },
    /// Check the database.
    Integrity,
    /// Take the clock's time although it jumped.
    AcceptClock,
    /// Speak with the node's catalogue as its owner: behind the answer, the socket carries the messages of the
    /// service `catalogue`, each with its length in front.
    Catalogue,
}

/// Why the node of this home did not answer.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No node runs.
    #[error("no node of this home is running; start one with `levada up`")]
    NotRunning,
    /// The socket failed or the answer was malformed.
    #[error("the control socket {path}: {text}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What failed.
        text: String,
    },
    /// The node refused or failed.
    #[error("{text}")]
    Refused {
        /// The exit code that fits.
        exit_code: u8,
        /// One line for a person.
        text: String,
    },
}

impl ControlError {
    /// The exit code of the command line.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { exit_code, .. } => *exit_code,
            Self::NotRunning | Self::Socket { .. } => 120,
        }
    }
}

/// An answer on the socket.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Ok(Value),
    Error { exit_code: u8, text: String },
}

/// Asks the node of `home`.
///
/// # Errors
/// [`ControlError::NotRunning`] if there is none; otherwise what it or the socket said.
pub async fn call(home: &Home, request: &Request) -> Result<Value, ControlError> {
    Ok(ask(home, request).await?.0)
}

/// Begins a conversation with the catalogue of the node of `home`.
///
/// # Errors
/// As for [`call`]; the node may keep no catalogue.
pub async fn converse(home: &Home) -> Result<(OwnedReadHalf, OwnedWriteHalf), ControlError> {
    let (_, read, write) = ask(home, &Request::Catalogue).await?;
    Ok((read, write))
}

/// The answer, and the socket behind it: the node says nothing more before it is spoken to.
async fn ask(
    home: &Home,
    request: &Request,
) -> Result<(Value, OwnedReadHalf, OwnedWriteHalf), ControlError> {
    let path = home.node_socket();
    let stream = UnixStream::connect(&path).await.map_err(|_| ControlError::NotRunning)?;
    let failed = |text: String| ControlError::Socket { path: path.clone(), text };
    let (read, mut write) = stream.into_split();
    let mut line = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
    line.push(b'\n');
    write.write_all(&line).await.map_err(|error| failed(error.to_string()))?;
    let mut answer = String::new();
    let mut reader = BufReader::new(read.take(MAX_LINE));
    reader.read_line(&mut answer).await.map_err(|error| failed(error.to_string()))?;
    match serde_json::from_str(&answer).map_err(|error| failed(error.to_string()))? {
        Reply::Ok(value) => Ok((value, reader.into_inner().into_inner(), write)),
        Reply::Error { exit_code, text } => Err(ControlError::Refused { exit_code, text }),
    }
}
