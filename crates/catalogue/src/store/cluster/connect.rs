//! Connections to the engine.

use std::time::Duration;

use async_nats::{Client, ConnectOptions};

use super::options::{Credentials, Options};
use crate::store::StoreError;

/// The timeout of one request to the engine.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a quiet connection is tried.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait at most before the next attempt to connect.
const MAX_RECONNECT_DELAY: Duration = Duration::from_millis(250);

/// A connection, which goes on in the background if no server answers now.
pub async fn connect(from: &Options) -> Result<Client, StoreError> {
    let mut options = ConnectOptions::new()
        .name("levada")
        .ping_interval(PING_INTERVAL)
        .connection_timeout(REQUEST_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .retry_on_initial_connect()
        .reconnect_delay_callback(|attempts| {
            MAX_RECONNECT_DELAY.min(Duration::from_millis(50 * attempts as u64))
        });
    if let Some(file) = &from.authorities {
        options = options.add_root_certificates(file.clone()).require_tls(true);
    }
    options = match &from.credentials {
        Credentials::None => options,
        Credentials::Password(name, password) => {
            options.user_and_password(name.clone(), password.to_string())
        }
        Credentials::Seed(seed) => options.nkey(seed.to_string()),
        Credentials::File(file) => {
            options.credentials_file(file).await.map_err(|error| StoreError::file(file, error))?
        }
    };
    options.connect(&from.servers[..]).await.map_err(|error| unavailable(&error))
}

/// The error of a request that the engine did not carry out.
pub fn unavailable(why: &(impl ToString + ?Sized)) -> StoreError {
    StoreError::Unavailable(why.to_string())
}
