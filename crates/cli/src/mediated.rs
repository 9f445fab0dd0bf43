//! A session at a service of type `capability`, for `ask` and `approve`.

use std::time::Duration;

use levada_client::{Client, ClientError, RequestSpec, Running};
use levada_core::Params;
use levada_core::wire::{Cause, Ended, mediation::Part};
use levada_services::brokering::mediation::{self, MediationError, ROLE};
use levada_session::{Connection, ReceiveHalf, SendHalf};
use tokio::time::timeout;

use crate::failure::{DENIED, Failure, PROTOCOL, UNREACHABLE};
use crate::names::Names;
use crate::output::plain;
use crate::service_target::ServiceTarget;

/// How long the service may take to accept one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the close may take to reach the node.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts a session at `target` with the role `role`.
pub async fn start(
    client: &Client,
    target: &ServiceTarget,
    names: Names,
    role: &str,
) -> Result<Running, Failure> {
    let mut params = Params::new();
    params.add(ROLE, role.as_bytes().to_vec())?;
    let spec = RequestSpec { service: target.service.clone(), params, ..RequestSpec::default() };
    let node = names.resolve(client, &target.node).await?;
    Ok(client.request_and_start(&node, spec).await?)
}

/// Receives the next message; an error if the service ends the session.
pub async fn receive(receive: &mut ReceiveHalf) -> Result<Part, Failure> {
    match mediation::receive(receive).await {
        Ok(Some(Part::Ended(ended))) => Err(failure(&ended)),
        Ok(Some(part)) => Ok(part),
        Ok(None) => {
            Err(Failure::new(PROTOCOL, "the service ended the session without giving a reason"))
        }
        Err(MediationError::Stream(error)) => Err(ClientError::from(error).into()),
        Err(error) => Err(Failure::new(PROTOCOL, format!("the service sent {error}"))),
    }
}

/// Sends one message.
pub async fn send(send: &mut SendHalf, part: Part) -> Result<(), Failure> {
    match timeout(SEND_TIMEOUT, mediation::send(send, part)).await {
        Ok(sent) => Ok(sent.map_err(ClientError::from)?),
        Err(_) => Err(Failure::new(UNREACHABLE, "unreachable: the service accepts no message")),
    }
}

/// The failure for a message of the wrong type.
pub fn unexpected() -> Failure {
    Failure::new(PROTOCOL, "the service sent an unexpected message")
}

/// Closes the session's connection, and waits until the close is sent.
pub async fn close(client: &Client, connection: &Connection) {
    client.close();
    connection.close(0, "");
    let _ = timeout(CLOSE_TIMEOUT, connection.flushed()).await;
}

fn failure(ended: &Ended) -> Failure {
    // `Ended::new` truncates the text: a misbehaving service may send a longer one.
    let text = plain(&Ended::new(ended.cause(), ended.text.as_str()).text);
    match ended.cause() {
        Cause::Away | Cause::Busy | Cause::Late => {
            Failure::new(UNREACHABLE, format!("unreachable: {text}"))
        }
        Cause::Replaced => Failure::new(DENIED, text),
        Cause::Malformed | Cause::Unspecified => {
            Failure::new(PROTOCOL, format!("the service rejected the message: {text}"))
        }
    }
}
