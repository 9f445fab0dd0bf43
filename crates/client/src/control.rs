//! The control socket, through which the command line controls the node of its home. The client
//! sends a request and the node replies, each one line with a JSON object.

mod elsewhere;
mod filter;
pub mod follow;
mod group;
mod paths;
mod provide;
mod share;

use std::path::PathBuf;

use levada_home::Home;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

pub use elsewhere::{NodeElsewhere, nodes_elsewhere};
pub use filter::Filter;
pub use group::GroupRequest;
pub use paths::Paths;
pub use provide::ProvideRequest;
pub use share::{ByUdp, ListingSettings, MediatedSettings, ShareRequest, ShareSettings};

/// The maximum length of a reply, in bytes.
const MAX_LINE: u64 = 16 * 1024 * 1024;

/// A request to the running node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Report its identity, addresses, services and state.
    Status,
    /// List the sessions that run, then the newest others.
    Sessions {
        /// The maximum number of entries.
        limit: u32,
        /// Only the sessions that run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        running: bool,
        /// Further conditions.
        #[serde(default, skip_serializing_if = "Filter::is_empty")]
        filter: Filter,
    },
    /// List the newest entries of the audit log.
    Log {
        /// The maximum number of entries.
        limit: u32,
        /// Further conditions.
        #[serde(default, skip_serializing_if = "Filter::is_empty")]
        filter: Filter,
        /// Reply with an empty object. After a line end of the client, send the entries in the
        /// order of their ids, one object a line, and then each new entry until the client closes
        /// the socket or the node ends.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        follow: bool,
    },
    /// Stop gracefully.
    Stop,
    /// Take no further requests and starts, and stop when no session runs or the time is over.
    Drain {
        /// The time in seconds.
        secs: u64,
    },
    /// Create an invitation.
    Invite {
        /// The service that may be requested; `None` for every service.
        service: Option<String>,
        /// The name under which this home pins the guest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Seconds until it expires.
        expires_secs: u64,
        /// Addresses for the invitation, `host:port` each, which precede the node's own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        addresses: Vec<String>,
    },
    /// Revoke a session, or a link of a capability and every link derived from it.
    RevokeId {
        /// The id of the session or the link in hexadecimal, or a prefix of it.
        id: String,
    },
    /// List the identities in the databases of the node's home that begin with a text.
    Identities {
        /// The beginning: at least [`levada_core::MIN_ABBREVIATION`] characters.
        beginning: String,
    },
    /// Revoke the rights that invitations gave to an identity.
    Disallow {
        /// The identity, a prefix of it, or a name that is pinned here.
        identity: String,
    },
    /// List the identities that may use services, and what gives them the right.
    Access {
        /// Only this identity, a prefix of it, or a name that is pinned here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<String>,
    },
    /// Explain which rule or right decides about a request.
    Explain {
        /// The identity, a prefix of it, or a name that is pinned here.
        identity: String,
        /// The name of the service.
        service: String,
        /// The parameters.
        params: Vec<(String, Vec<u8>)>,
        /// Seconds until the session shall expire, if the request sets that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_secs: Option<u64>,
        /// The number of starts.
        uses: u32,
    },
    /// Give an identity the right to request services.
    Allow {
        /// The identity, a prefix of it, or a name that is pinned here.
        identity: String,
        /// The services; none for every service.
        services: Vec<String>,
        /// Seconds until the right expires; `None` for never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_secs: Option<u64>,
        /// The number of starts that it permits; `None` for any number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uses: Option<u32>,
    },
    /// Remove a right of an identity to a service, or with `all` every right, and end what it runs
    /// and revoke what it requested, holds and has passed on.
    RemoveAccess {
        /// The identity, a prefix of it, or a name that is pinned here.
        identity: String,
        /// The service; `None` for every service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service: Option<String>,
        /// End and revoke everything.
        #[serde(default)]
        all: bool,
    },
    /// List, change, sign or take over groups.
    Group(GroupRequest),
    /// List the invitations that can be redeemed.
    Invitations,
    /// Make an invitation void.
    CancelInvitation {
        /// Its id, or a prefix of it.
        id: String,
    },
    /// Share files, and issue a ticket.
    Share(ShareRequest),
    /// List the shares with their tickets.
    Shares,
    /// Provide a package of a catalogue to others, if the configuration allows it. `provided` in
    /// the reply says whether it does.
    Provide(ProvideRequest),
    /// Stop a share: its tickets and the sessions that they gave are revoked.
    StopShare {
        /// The id of the share.
        share: i64,
    },
    /// Revoke a ticket and the sessions that it gave.
    RevokeTicket {
        /// Its id, or a prefix of it.
        ticket: String,
    },
    /// Write a consistent copy of the node's database to a file.
    Snapshot {
        /// The path of the file.
        to: PathBuf,
    },
    /// Write a consistent copy of the node's catalogue into an empty folder. `kept` in the reply is
    /// false if the node has no catalogue.
    BackUpCatalogue {
        /// The folder.
        to: PathBuf,
    },
    /// Restore identity, configuration and databases from a folder, then restart.
    Restore {
        /// The folder with the unpacked backup.
        from: PathBuf,
    },
    /// Rotate the node's key. All sessions of the old key end.
    Rotate {
        /// The ids of sessions at other nodes that the old key requested for other identities, and
        /// that continue.
        #[serde(default)]
        keep: Vec<String>,
    },
    /// Check the consistency of the database.
    Integrity,
    /// Accept the system clock although it has jumped.
    AcceptClock,
    /// Open the node's catalogue as its owner. After the reply, the socket carries the messages of
    /// the service `catalogue`, each prefixed with its length.
    Catalogue,
}

/// A reply on the socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request succeeded.
    Ok(Value),
    /// It was refused, or failed.
    Error {
        /// The exit code for the command line.
        exit_code: u8,
        /// One line of text.
        text: String,
    },
}

/// Why a request to the node of this home failed.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No node is running.
    #[error("no node of this home is running; start one with `levada up`")]
    NotRunning,
    /// The socket failed or the answer was malformed.
    #[error("the control socket {path}: {text}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The problem.
        text: String,
    },
    /// The node refused the request, or failed.
    #[error("{text}")]
    Refused {
        /// The exit code for the command line.
        exit_code: u8,
        /// One line of text.
        text: String,
    },
}

impl ControlError {
    /// The exit code for the command line.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { exit_code, .. } => *exit_code,
            Self::NotRunning | Self::Socket { .. } => 120,
        }
    }
}

/// Sends a request to the node of `home`, and returns its reply.
///
/// # Errors
/// [`ControlError::NotRunning`] if there is none; otherwise the error of the node or of the socket.
pub async fn call(home: &Home, request: &Request) -> Result<Value, ControlError> {
    Ok(send(home.node_socket(), request).await?.0)
}

/// As [`call`]; what the request has made may end when the result is dropped, or this process ends.
///
/// # Errors
/// As for [`call`].
pub async fn hold(home: &Home, request: &Request) -> Result<(Value, Held), ControlError> {
    let (value, read, write) = send(home.node_socket(), request).await?;
    Ok((value, Held { _read: read, _write: write }))
}

/// The socket to a node that ends something when it is closed.
pub struct Held {
    _read: OwnedReadHalf,
    _write: OwnedWriteHalf,
}

/// Opens the catalogue of the node of `home`: the halves of a socket for the messages of the
/// service `catalogue`.
///
/// # Errors
/// As for [`call`]; [`ControlError::Refused`] if the node has no catalogue.
pub async fn open_catalogue(home: &Home) -> Result<(OwnedReadHalf, OwnedWriteHalf), ControlError> {
    let (_, read, write) = send(home.node_socket(), &Request::Catalogue).await?;
    Ok((read, write))
}

/// Sends a request to the socket at `path`: the reply, and the socket. The node sends nothing after
/// the reply before it receives a message, so the buffer of the reader is empty.
async fn send(
    path: PathBuf,
    request: &Request,
) -> Result<(Value, OwnedReadHalf, OwnedWriteHalf), ControlError> {
    let stream = UnixStream::connect(&path).await.map_err(|_| ControlError::NotRunning)?;
    let failed = |text: String| ControlError::Socket { path: path.clone(), text };
    let (read, mut write) = stream.into_split();
    let mut line = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
    line.push(b'\n');
    write.write_all(&line).await.map_err(|error| failed(error.to_string()))?;
    let mut reply = String::new();
    let mut reader = BufReader::new(read.take(MAX_LINE));
    reader.read_line(&mut reply).await.map_err(|error| failed(error.to_string()))?;
    match serde_json::from_str(&reply).map_err(|error| failed(error.to_string()))? {
        Reply::Ok(value) => Ok((value, reader.into_inner().into_inner(), write)),
        Reply::Error { exit_code, text } => Err(ControlError::Refused { exit_code, text }),
    }
}
