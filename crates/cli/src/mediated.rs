//! What `ask` and `approve` have in common: a session at a service of type `capability`.

use std::time::Duration;

use levada_core::Params;
use levada_core::wire::{Cause, Ended, mediation::Part};
use levada_node::client::{Client, ClientError, RequestSpec, Running};
use levada_services::brokering::mediation::{self, MediationError, ROLE};
use levada_session::{Connection, ReceiveHalf, SendHalf};
use tokio::time::timeout;

use crate::failure::{DENIED, Failure, PROTOCOL, UNREACHABLE};
use crate::names::Names;
use crate::output::plain;
use crate::service_target::ServiceTarget;

/// How long the service may take to accept one message.
const DELIVERY: Duration = Duration::from_secs(30);
/// How long the last words to the node may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Starts a session at `place`, in which this side has the role `role`.
pub async fn start(
    client: &Client,
    place: &ServiceTarget,
    names: Names,
    role: &str,
) -> Result<Running, Failure> {
    let mut params = Params::new();
    params.add(ROLE, role.as_bytes().to_vec())?;
    let spec = RequestSpec { service: place.service.clone(), params, ..RequestSpec::default() };
    let target = names.resolve(client, &place.node).await?;
    Ok(client.request_and_start(&target, spec).await?)
}

/// The next message; an error if the service ends the session.
pub async fn next(receive: &mut ReceiveHalf) -> Result<Part, Failure> {
    match mediation::receive(receive).await {
        Ok(Some(Part::Ended(ended))) => Err(failure(&ended)),
        Ok(Some(part)) => Ok(part),
        Ok(None) => Err(Failure::new(PROTOCOL, "the service ended the session without a word")),
        Err(MediationError::Stream(error)) => Err(ClientError::from(error).into()),
        Err(error) => Err(Failure::new(PROTOCOL, format!("the service sent {error}"))),
    }
}

/// Sends one message.
pub async fn say(send: &mut SendHalf, part: Part) -> Result<(), Failure> {
    match timeout(DELIVERY, mediation::send(send, part)).await {
        Ok(sent) => Ok(sent.map_err(ClientError::from)?),
        Err(_) => Err(Failure::new(UNREACHABLE, "unreachable: the service takes no message")),
    }
}

/// A message that does not belong here.
pub fn unexpected() -> Failure {
    Failure::new(PROTOCOL, "the service sent something else than was asked")
}

/// Closes the session's connection; the node shall hear of it before this process is gone.
pub async fn leave(client: &Client, connection: &Connection) {
    client.close();
    connection.close(0, "");
    let _ = timeout(FAREWELL, connection.flushed()).await;
}

fn failure(ended: &Ended) -> Failure {
    // Cut to the length that an honest service keeps to.
    let text = plain(&Ended::new(ended.cause(), ended.text.as_str()).text);
    match ended.cause() {
        Cause::Away | Cause::Busy | Cause::Late => {
            Failure::new(UNREACHABLE, format!("unreachable: {text}"))
        }
        Cause::Replaced => Failure::new(DENIED, text),
        Cause::Malformed | Cause::Unspecified => {
            Failure::new(PROTOCOL, format!("the service does not accept this: {text}"))
        }
    }
}
