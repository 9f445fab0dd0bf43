//! Connections to the engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Server};

use tokio::time::{Instant, sleep};

use super::options::{Credentials, Options};
use crate::store::StoreError;

/// The timeout of one request to the engine.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks at a connection that is being made.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How often a quiet connection is tried.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait at most before the next attempt to connect.
const MAX_RECONNECT_DELAY: Duration = Duration::from_millis(250);

/// A connection, which goes on in the background if no server answers now.
pub struct Connection {
    pub client: Client,
    /// Why the servers could not be reached when all were tried the last time.
    failures: Arc<Mutex<String>>,
    opened: Instant,
}

impl Connection {
    pub async fn open(from: &Options) -> Result<Self, StoreError> {
        let failures = Arc::new(Mutex::new(String::new()));
        let options = with_credentials(options(&failures), &from.credentials).await?;
        let options = match &from.authorities {
            Some(file) => options.add_root_certificates(file.clone()).require_tls(true),
            None => options,
        };
        let client = options.connect(&from.servers[..]).await;
        let client = client.map_err(|error| unavailable(&error))?;
        Ok(Self { client, failures, opened: Instant::now() })
    }

    /// Fails if no server is connected. The client library would keep what is sent, for later. A
    /// connection that was just opened, as by a command that ends with its first change, has some
    /// time to be made.
    pub async fn check(&self) -> Result<(), StoreError> {
        while !self.is_connected() && self.opened.elapsed() < REQUEST_TIMEOUT {
            sleep(POLL_INTERVAL).await;
        }
        if self.is_connected() {
            return Ok(());
        }
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let why = if failures.is_empty() { String::new() } else { format!(" ({failures})") };
        Err(unavailable(&format!("no server of it is connected{why}")))
    }

    /// Returns true if a server is connected and its limits are known. The library learns them a
    /// moment later.
    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
            && self.client.try_server_info().is_some()
    }
}

/// The options of all connections. What fails is noted in `failures`.
fn options(failures: &Arc<Mutex<String>>) -> ConnectOptions {
    let failures = Arc::clone(failures);
    ConnectOptions::new()
        .name("levada")
        .ping_interval(PING_INTERVAL)
        .connection_timeout(REQUEST_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .retry_on_initial_connect()
        .reconnect_delay_callback(|attempts| {
            MAX_RECONNECT_DELAY.min(Duration::from_millis(50 * attempts as u64))
        })
        // Called before the servers are tried. Events of the library name only the kind of an
        // error.
        .reconnect_to_server_callback(move |servers, _| {
            *failures.lock().unwrap_or_else(PoisonError::into_inner) = failures_of(&servers);
            async { None }
        })
}

async fn with_credentials(
    options: ConnectOptions,
    credentials: &Credentials,
) -> Result<ConnectOptions, StoreError> {
    Ok(match credentials {
        Credentials::None => options,
        Credentials::Password(name, password) => {
            options.user_and_password(name.clone(), password.to_string())
        }
        Credentials::Seed(seed) => options.nkey(seed.to_string()),
        Credentials::File(file) => {
            options.credentials_file(file).await.map_err(|error| StoreError::file(file, error))?
        }
    })
}

/// The last error of each server. Without its URL, which may contain a password.
fn failures_of(servers: &[Server]) -> String {
    let failures = servers.iter().filter_map(|server| {
        let error = server.last_error.as_ref()?;
        Some(format!("{}:{}: {error}", server.addr.host(), server.addr.port()))
    });
    failures.collect::<Vec<_>>().join("; ")
}

/// The error of a request that the engine did not carry out.
pub fn unavailable(why: &(impl ToString + ?Sized)) -> StoreError {
    StoreError::Unavailable(why.to_string())
}
