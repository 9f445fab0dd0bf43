//! The client: queries, requests, connects, terminates, revokes and joins at other nodes, with the
//! identity of this home. It needs no running node on this machine.

mod dial;
mod dial_error;
mod error;
mod exchange;
mod groups;
mod identify;
mod join;
mod list;
mod operations;
mod path;
mod reach;
mod remember;
mod resolve;
mod service_type;
mod start;
mod succession;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use levada_channel::{ClientConfig, Options};
use levada_contexts::PathTickets;
use levada_core::{Clock, Framing, Identity, Params, SecretKey, SystemClock, UnixTime};
use levada_session::{Connection, Stream};
use tokio::task::spawn_blocking;

use levada_capability::SessionId;
use levada_home::Home;
use levada_home::known::Known;

pub use dial::Over;
pub use error::ClientError;
pub use list::{Listed, Listing, Standing};
pub use resolve::{DEFAULT_PORT, Target, UnpinnedNode, Verdict};

/// The client side of this home: its key, its pins, and one shared connection to each node.
pub struct Client {
    key: Arc<SecretKey>,
    known: Arc<Known>,
    tls: Arc<ClientConfig>,
    /// Tickets of sessions through middleboxes.
    paths: Arc<PathTickets>,
    /// Connections with `auto` framing, by the node's identity.
    shared: Mutex<HashMap<Identity, Connection>>,
}

/// The contents of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestSpec {
    /// The service's name.
    pub service: String,
    /// The identity that the capability is bound to; the requester itself if `None`.
    pub holder: Option<Identity>,
    /// When the right to start ends; the node's default if `None`.
    pub expires: Option<UnixTime>,
    /// The number of times that the session may be started; 0 counts as 1.
    pub uses: u32,
    /// The time that one start may run, in seconds; `None` for no limit.
    pub max_run: Option<u64>,
    /// The session's parameters, which no start can change.
    pub params: Params,
    /// The requested framing; the service's default if `None`.
    pub framing: Option<Framing>,
}

/// A session that has been started.
pub struct Running {
    /// Its id.
    pub session: SessionId,
    /// The stream of the session; the next message is the service's.
    pub stream: Stream,
    /// Keeps the connection open while the session is used.
    pub connection: Connection,
}

/// The result of [`Client::join`].
#[derive(Clone, Debug)]
pub struct Joined {
    /// The nickname that the node is pinned under.
    pub name: String,
    /// The node.
    pub identity: Identity,
    /// The name that the node has chosen, in printable characters. It is not authenticated.
    pub own_name: String,
    /// The nickname that the node had here, if joining changed it.
    pub renamed_from: Option<String>,
    /// The services that the invitation permits.
    pub services: Vec<String>,
}

impl Client {
    /// Opens the key and the pins of `home`; both are created on first use.
    ///
    /// # Errors
    /// [`ClientError::Local`] names the file that could not be used.
    pub fn new(home: &Home) -> Result<Self, ClientError> {
        let key = home.key().map_err(ClientError::local)?;
        let known = Arc::new(Known::open(&home.known_db())?);
        let tls = Arc::new(ClientConfig::new(&key).map_err(ClientError::local)?);
        Ok(Self { key: Arc::new(key), known, tls, paths: Arc::default(), shared: Mutex::default() })
    }

    /// A client of the same home that shares no connections with this one.
    pub fn unshared(&self) -> Self {
        Self {
            key: self.key.clone(),
            known: self.known.clone(),
            tls: self.tls.clone(),
            paths: self.paths.clone(),
            shared: Mutex::default(),
        }
    }

    /// The identity of this home.
    pub fn identity(&self) -> Identity {
        self.key.identity()
    }

    /// The pins of this home, for code in the blocking pool: other code uses [`Self::with_known`].
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Whether only this client uses known.db: no work of [`Self::with_known`] runs, and
    /// [`Self::unshared`] clients are dropped.
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.known) == 1
    }

    /// Runs `work` on known.db in the blocking pool, because it waits for the disk, and up to 5 s
    /// for the lock of another process. `work` completes even if this future is dropped.
    ///
    /// # Errors
    /// The error of `work`; [`ClientError::Local`] if it panicked or the runtime is shutting down.
    pub async fn with_known<T: Send + 'static, E: Into<ClientError> + Send + 'static>(
        &self,
        work: impl FnOnce(&Known) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ClientError> {
        let known = self.known.clone();
        match spawn_blocking(move || work(&known)).await {
            Ok(done) => done.map_err(Into::into),
            Err(error) => Err(ClientError::Local(format!("known.db could not be used: {error}"))),
        }
    }

    /// The key of this home, which signs grants.
    pub fn key(&self) -> &SecretKey {
        &self.key
    }

    /// Closes every shared connection.
    pub fn close(&self) {
        for (_, connection) in self.connections().drain() {
            connection.close(0, "");
        }
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, HashMap<Identity, Connection>> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn now(&self) -> UnixTime {
        SystemClock.now()
    }

    fn options(framing: Framing) -> Options {
        Options { framing, ..Options::default() }
    }
}

#[cfg(test)]
mod tests;
