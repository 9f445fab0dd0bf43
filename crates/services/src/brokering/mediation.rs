//! The messages of a session of type `capability` on its stream, for the service and for both kinds
//! of clients: entities, which decide, and requesters.

use levada_core::wire::{self, mediation::Part};
use levada_service::ServiceError;
use levada_service::stdio::StdioError;
use levada_session::{ReceiveHalf, SendHalf, StreamError};
use thiserror::Error;

/// The parameter with the client's role: [`ENTITY`] or [`REQUESTER`].
pub const ROLE: &str = "role";
/// The role of a client that registers, and decides about the requests of others.
pub const ENTITY: &str = "entity";
/// The role of a client that requests a capability from an entity.
pub const REQUESTER: &str = "requester";

/// Why no message could be received.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum MediationError {
    /// The stream or its connection ended early.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The received bytes are not a valid message.
    #[error("a malformed message")]
    Malformed,
}

impl From<MediationError> for ServiceError {
    fn from(error: MediationError) -> Self {
        match error {
            MediationError::Stream(error) => error.into(),
            MediationError::Malformed => StdioError::Malformed.into(),
        }
    }
}

/// The next message; `None` once the peer has finished. Cancel-safe.
///
/// # Errors
/// [`MediationError`] if the stream ended early, or the received bytes are not a valid message.
pub async fn receive(receive: &mut ReceiveHalf) -> Result<Option<Part>, MediationError> {
    let bytes = match receive.receive(wire::MAX_MEDIATION).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(StreamError::TooLong(_)) => return Err(MediationError::Malformed),
        Err(error) => return Err(error.into()),
    };
    let message: wire::Mediation = wire::decode(&bytes).map_err(|_| MediationError::Malformed)?;
    message.part.map(Some).ok_or(MediationError::Malformed)
}

/// Sends one message.
///
/// # Errors
/// [`StreamError`] if the stream or the connection ended.
pub async fn send(send: &mut SendHalf, part: Part) -> Result<(), StreamError> {
    send.send(&wire::encode(&wire::Mediation::from(part))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::wire::{Cause, Ended};

    #[tokio::test]
    async fn messages_round_trip_and_other_bytes_are_refused() {
        let (near, far) = levada_session::testing::pair().await.unwrap();
        let (mut sending, _near) = near.split();
        let (_far, mut receiving) = far.split();
        let part = Part::Ended(Ended::new(Cause::Away, "gone"));
        send(&mut sending, part.clone()).await.unwrap();
        assert_eq!(receive(&mut receiving).await, Ok(Some(part)));
        for wrong in [&b""[..], &[0xff; 8], &[0; 3]] {
            sending.send(wrong).await.unwrap();
            assert_eq!(receive(&mut receiving).await, Err(MediationError::Malformed));
        }
        sending.finish().await.unwrap();
        assert_eq!(receive(&mut receiving).await, Ok(None));
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_refused() {
        let (near, far) = levada_session::testing::pair().await.unwrap();
        let (mut sending, _near) = near.split();
        let (_far, mut receiving) = far.split();
        let long = vec![0; wire::MAX_MEDIATION + 1];
        let write = async {
            // It may be refused before it is complete.
            let _ = sending.send(&long).await;
        };
        let ((), received) = tokio::join!(write, receive(&mut receiving));
        assert_eq!(received, Err(MediationError::Malformed));
    }
}
