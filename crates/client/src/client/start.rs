//! A session that is requested and started at once. A node that speaks version 3 takes one operation for both, which
//! saves a round trip; others take one after the other.

use levada_core::Framing;
use levada_core::wire::{Reason, answer::Answer, operation::Operation};
use levada_session::{Class, Connection};

use super::operations::{answer_to, class_of, session_id, unexpected, wire_request};
use super::{Client, ClientError, RequestSpec, Running, Target};

/// The first version of the protocol with `start`.
const VERSION: u32 = 3;

impl Client {
    /// Requests a session for this identity and starts it.
    ///
    /// The node's version is not known before its first answer, and to wait for it would cost the round trip that
    /// is to be saved. So the version that the node spoke last time decides.
    ///
    /// # Errors
    /// As for [`Self::request`] and [`Self::connect`].
    pub async fn request_and_start(
        &self,
        target: &Target,
        spec: RequestSpec,
    ) -> Result<Running, ClientError> {
        let class = class_of(&spec.params);
        let plain = spec.framing.unwrap_or_default() == Framing::Auto;
        if plain && self.known_version(target) >= VERSION {
            let connection = self.connection(target, Framing::Auto).await?;
            if let Some(running) = self.start_at_once(connection, target, &spec, class).await? {
                return Ok(running);
            }
        }
        let capability = self.request(target, spec).await?;
        self.connect_as(&capability, class).await
    }

    /// `None` if the node knows no such operation any more, or if the service wants another framing than that of
    /// this connection: then nothing was started.
    async fn start_at_once(
        &self,
        connection: Connection,
        target: &Target,
        spec: &RequestSpec,
        class: Class,
    ) -> Result<Option<Running>, ClientError> {
        let mut stream = connection.open(class)?;
        let answer = answer_to(&mut stream, Operation::Start(wire_request(spec))).await?;
        self.note_version(&connection);
        let at_once = match answer {
            Answer::StartedAtOnce(at_once) => at_once,
            Answer::Refusal(refusal) => {
                return match refusal.reason() {
                    Reason::Malformed | Reason::Framing => Ok(None),
                    _ => Err(refusal.into()),
                };
            }
            _ => return Err(unexpected()),
        };
        let (Some(granted), Some(started)) = (at_once.granted, at_once.started) else {
            return Err(unexpected());
        };
        tracing::debug!(node = %connection.peer(), service = spec.service, "started");
        let capability = self.granted(&connection, target, spec.clone(), granted)?;
        let session = session_id(&started)?;
        if capability.session() != session {
            return Err(unexpected());
        }
        Ok(Some(Running { session, stream, connection }))
    }

    /// The version that the node spoke when it was last connected to; 0 if that is not known.
    fn known_version(&self, target: &Target) -> u32 {
        self.known.version_of(&target.identity).unwrap_or_else(|error| {
            tracing::debug!(%error, "could not look up which version a node speaks");
            0
        })
    }

    /// Remembers the version that the node speaks, which is known with its first answer.
    pub(super) fn note_version(&self, connection: &Connection) {
        let noted = self.known.note_version(&connection.peer(), connection.version());
        if let Err(error) = noted {
            tracing::debug!(%error, "could not note which version a node speaks");
        }
    }
}
