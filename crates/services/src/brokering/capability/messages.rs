//! The messages of a session, each within a time limit.

use std::time::Duration;

use levada_core::wire::mediation::Part;
use levada_service::stdio::StdioError;
use levada_service::{ServiceError, close};
use levada_session::{ReceiveHalf, SendHalf};
use tokio::time::timeout;

use crate::brokering::mediation;

/// How long a client may take to send each message of the beginning of its session.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to accept one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// The next message, which must arrive within [`RECEIVE_TIMEOUT`].
pub(super) async fn expect(receive: &mut ReceiveHalf) -> Result<Part, ServiceError> {
    let part = timeout(RECEIVE_TIMEOUT, mediation::receive(receive)).await;
    part.map_err(|_| ServiceError::Gone)??.ok_or(ServiceError::Gone)
}

/// Sends a message. A client that does not accept it within [`SEND_TIMEOUT`] counts as
/// disconnected.
pub(super) async fn deliver(send: &mut SendHalf, part: Part) -> Result<(), ServiceError> {
    timeout(SEND_TIMEOUT, mediation::send(send, part)).await.map_err(|_| ServiceError::Gone)??;
    Ok(())
}

/// Sends the last message, and ends the session.
pub(super) async fn finish(
    mut send: SendHalf,
    receive: ReceiveHalf,
    part: Part,
) -> Result<(), ServiceError> {
    deliver(&mut send, part).await?;
    Ok(close(send, receive).await?)
}

pub(super) fn malformed() -> ServiceError {
    StdioError::Malformed.into()
}
