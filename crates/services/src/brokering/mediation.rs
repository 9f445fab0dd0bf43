//! The messages of a session of type `capability` on its stream, for the service and for both who use
//! it: entities that decide, and requesters that ask.

use levada_core::wire::{self, mediation::Part};
use levada_service::ServiceError;
use levada_service::stdio::StdioError;
use levada_session::{ReceiveHalf, SendHalf, StreamError};
use thiserror::Error;

/// The parameter that says who speaks: [`ENTITY`] or [`REQUESTER`].
pub const ROLE: &str = "role";
/// Registers, and decides what others ask for.
pub const ENTITY: &str = "entity";
/// Asks an entity for a capability.
pub const REQUESTER: &str = "requester";

/// Why no message could be received.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum MediationError {
    /// The stream or its connection ended early.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// What came is no message.
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

/// The next message; `None` once the peer has finished. If the future is dropped, nothing is lost.
///
/// # Errors
/// [`MediationError`] if the stream ended early, or what came is no message.
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
    async fn messages_come_as_they_were_sent_and_nothing_else_does() {
        let (near, far) = levada_session::testing::pair().await.unwrap();
        let ((mut sending, _near), (_far, mut receiving)) = (near.split(), far.split());
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
        let ((mut sending, _near), (_far, mut receiving)) = (near.split(), far.split());
        let long = vec![0; wire::MAX_MEDIATION + 1];
        let write = async {
            // It may be refused before it is whole.
            let _ = sending.send(&long).await;
        };
        let ((), received) = tokio::join!(write, receive(&mut receiving));
        assert_eq!(received, Err(MediationError::Malformed));
    }
}
