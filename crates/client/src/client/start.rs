//! Requests and starts a session. A node that speaks version 3 or later takes one operation for
//! both, which saves a round trip; older nodes take one after the other.

use levada_core::Framing;
use levada_core::wire::{Reason, answer::Answer, operation::Operation};
use levada_session::{Class, Connection};

use super::operations::{answer_to, class_of, session_id, unexpected, wire_request};
use super::remember::remember_version;
use super::{Client, ClientError, RequestSpec, Running, Target};

/// The first version of the protocol with the operation `Start`.
const START_VERSION: u32 = 3;

impl Client {
    /// Requests a session for this identity and starts it.
    ///
    /// The version that the node spoke last time decides whether one operation does both: its
    /// present version is known with its first answer, and waiting for that would cost the round
    /// trip that is to be saved.
    ///
    /// # Errors
    /// As for [`Self::request`] and [`Self::connect`].
    pub async fn request_and_start(
        &self,
        target: &Target,
        spec: RequestSpec,
    ) -> Result<Running, ClientError> {
        let class = class_of(&spec.params);
        let is_auto = spec.framing.unwrap_or_default() == Framing::Auto;
        if is_auto {
            let version = self.known_version(target).await;
            if version >= START_VERSION
                && let Some(running) = self.start_in_one(target, &spec, class, version).await?
            {
                return Ok(running);
            }
        }
        let capability = self.request(target, spec).await?;
        self.connect_as(&capability, class).await
    }

    /// Sends `Start` on the shared connection, also if others use it: a dedicated one would cost
    /// the round trip that is to be saved. `None` if nothing was started, because the node no
    /// longer has this operation, or because the service requires a framing other than that of this
    /// connection. `version` is the stored one of the target.
    async fn start_in_one(
        &self,
        target: &Target,
        spec: &RequestSpec,
        class: Class,
        version: u32,
    ) -> Result<Option<Running>, ClientError> {
        let connection = self.connection(target, Framing::Auto).await?;
        let mut stream = connection.open(class)?;
        let answer = answer_to(&mut stream, Operation::Start(wire_request(spec))).await?;
        if (connection.peer(), connection.version()) != (target.identity, version) {
            self.store_version(&connection).await?;
        }
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

    /// The version that the node spoke on its last connection; 0 if that is unknown.
    async fn known_version(&self, target: &Target) -> u32 {
        let node = target.identity;
        self.with_known(move |known| known.version_of(&node)).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "could not read the version of a node from known.db");
            0
        })
    }

    async fn store_version(&self, connection: &Connection) -> Result<(), ClientError> {
        let node = connection.peer();
        let version = connection.version();
        self.with_known(move |known| {
            remember_version(known, &node, version);
            Ok::<_, ClientError>(())
        })
        .await
    }
}
