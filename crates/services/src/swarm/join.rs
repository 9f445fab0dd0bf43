//! The client's side: joins a share.

use std::time::Duration;

use levada_capability::Capability;
use levada_client::{Client, ClientError, Running};
use levada_service::Streams;
use levada_service::streams::OpenError;
use levada_session::{Class, Connection};
use levada_swarm::driver::Link;
use levada_swarm::{Description, DescriptionError};
use levada_transport::quic::Endpoint;
use thiserror::Error;
use tokio::time::timeout;

/// How long the node may take to describe the share.
const DESCRIPTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a share could not be joined.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The session did not start.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The stream for chunks could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The node sent no valid description.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The node sent no description in time.
    #[error("the node does not describe the share")]
    Silent,
}

/// A joined share: its two streams, its description, and the connection.
pub type Joined = (Link, Description, Connection);

/// Starts the session that `capability` permits, and opens the stream for chunks. Both streams go
/// by TCP.
///
/// # Errors
/// [`JoinError`].
pub async fn join(client: &Client, capability: &Capability) -> Result<Joined, JoinError> {
    let (mut link, description, connection) = join_first(client, capability).await?;
    if description.udp.is_some() {
        link = link.together().await.map_err(DescriptionError::from)?;
    }
    Ok((link, description, connection))
}

/// As [`join`], but in a share with UDP, a call of [`Link::together`] or [`Link::split`] must
/// follow.
///
/// # Errors
/// [`JoinError`].
pub async fn join_first(client: &Client, capability: &Capability) -> Result<Joined, JoinError> {
    describe(client.connect_with_streams(capability).await?).await
}

/// A further session over QUIC with the node of `connection`, for [`Link::split`].
///
/// # Errors
/// [`JoinError`].
pub async fn join_over_udp(
    client: &Client,
    capability: &Capability,
    connection: &Connection,
    endpoint: Endpoint,
) -> Result<Joined, JoinError> {
    describe(client.connect_over_udp(capability, connection, endpoint).await?).await
}

async fn describe((running, streams): (Running, Streams)) -> Result<Joined, JoinError> {
    let data = streams.opener().open(Class::Bulk).await?;
    let mut control = running.stream;
    let described = timeout(DESCRIPTION_TIMEOUT, Description::receive(&mut control)).await;
    let description = described.map_err(|_| JoinError::Silent)??;
    Ok((Link { control, data }, description, running.connection))
}
