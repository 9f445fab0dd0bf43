//! The client's side: joins a share.

use std::time::Duration;

use levada_capability::Capability;
use levada_client::{Client, ClientError};
use levada_service::streams::OpenError;
use levada_session::{Class, Connection};
use levada_swarm::driver::Link;
use levada_swarm::{Description, DescriptionError};
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

/// Starts the session that `capability` permits, and opens the stream for chunks.
///
/// # Errors
/// [`JoinError`].
pub async fn join(
    client: &Client,
    capability: &Capability,
) -> Result<(Link, Description, Connection), JoinError> {
    let (running, streams) = client.connect_with_streams(capability).await?;
    let data = streams.opener().open(Class::Bulk).await?;
    let mut control = running.stream;
    let described = timeout(DESCRIPTION_TIMEOUT, Description::receive(&mut control)).await;
    let description = described.map_err(|_| JoinError::Silent)??;
    Ok((Link { control, data }, description, running.connection))
}
