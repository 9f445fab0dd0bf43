//! Two connected ends in one process, with a real handshake, for tests of the crates above.

use levada_core::{RandomError, SecretKey, SystemRandom};
use thiserror::Error;
use tokio::io::duplex;
use tokio::task::yield_now;

use crate::{Class, ClientConfig, Connection, Options, ServerConfig, SessionError, Stream};
use crate::{accept, connect};

/// Why the two ends were not connected.
#[derive(Debug, Error)]
pub enum TestingError {
    /// The system has no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The connection failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The channel rejected its configuration.
    #[error(transparent)]
    Channel(#[from] levada_channel::Error),
}

/// A client's and a server's end of one connection over memory. Both know the version of the
/// protocol.
///
/// # Errors
/// [`TestingError`] if the handshake fails.
pub async fn connections(options: Options) -> Result<(Connection, Connection), TestingError> {
    let client_key = SecretKey::generate(&SystemRandom)?;
    let server_key = SecretKey::generate(&SystemRandom)?;
    let client = ClientConfig::new(&client_key)?;
    let server = ServerConfig::new(&server_key)?;
    let (near, far) = duplex(256 * 1024);
    let (client, server) = tokio::join!(
        connect(Box::new(near), &client, Some(server_key.identity()), options.clone()),
        accept(Box::new(far), &server, options),
    );
    let client = client?;
    let server = server?;
    // A client is connected before the server's HELLO has arrived.
    while client.is_open() && client.version() < server.version() {
        yield_now().await;
    }
    Ok((client, server))
}

/// The two ends of one interactive stream; the connection ends when both are dropped. A first
/// message was exchanged.
///
/// # Errors
/// [`TestingError`] if the handshake or the first message fails.
pub async fn pair() -> Result<(Stream, Stream), TestingError> {
    let (client, server) = connections(Options::default()).await?;
    let mut near = client.open(Class::Interactive)?;
    near.send(b"").await.map_err(|_| SessionError::Closed)?;
    let mut far = server.accept().await.ok_or(SessionError::Closed)?;
    far.receive(0).await.map_err(|_| SessionError::Closed)?;
    Ok((near, far))
}
