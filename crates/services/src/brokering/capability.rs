//! `capability`: carries questions for capabilities to the entities that have registered, and their
//! replies back: Capone (secure channels and capabilities), figure "Capability Request".
//!
//! It trusts nobody and need not be trusted: questions are signed, replies sealed
//! ([`levada_capability::exchange`]). What it can do is hold them back.

mod entity;
mod pending;
mod requester;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use levada_core::wire::{Cause, Ended, mediation::Part};
use levada_core::{Identity, Params};
use levada_service::stdio::StdioError;
use levada_service::{
    Context, Invocation, Refused, Running, Service, ServiceError, ServiceType, close,
    definition_options,
};
use levada_session::{ReceiveHalf, SendHalf, Stream};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use tokio::time::timeout;

use crate::brokering::mediation::{self, ENTITY, REQUESTER, ROLE};
use pending::PendingRequests;

/// How long whoever has begun a session may take to say what for.
const FIRST_WORDS: Duration = Duration::from_secs(10);
/// How long somebody may take to accept one message.
const DELIVERY: Duration = Duration::from_secs(30);
/// How long a question may wait for its reply, whatever the requester says.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The most that a limit may be set to.
const MAX_LIMIT: usize = 10_000;

definition_options! {
    /// The options of a definition of type `capability`.
    struct Options {
        #[serde(default = "entities", deserialize_with = "limit")]
        entities: usize,
        #[serde(default = "questions", deserialize_with = "limit")]
        questions: usize,
        #[serde(default = "questions_per_requester", deserialize_with = "limit")]
        questions_per_requester: usize,
    }
}

/// How much the service takes on.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Entities that are registered at once.
    entities: usize,
    /// Questions that wait for their reply.
    questions: usize,
    /// Those of one requester.
    questions_per_requester: usize,
}

/// The type `capability`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("capability", |_, context, options: Options| {
        Ok(Arc::new(Mediator::new(context, &options)))
    })
}

/// The service of type `capability`.
struct Mediator {
    node: Identity,
    pending: PendingRequests,
}

/// Who speaks in a session.
enum Role {
    Entity,
    Requester,
}

impl Mediator {
    /// A service with nobody registered.
    fn new(context: &Context, options: &Options) -> Self {
        let limits = Limits {
            entities: options.entities,
            questions: options.questions,
            questions_per_requester: options.questions_per_requester,
        };
        Self { node: context.node, pending: PendingRequests::new(limits) }
    }

    async fn serve(&self, invocation: Invocation, stream: Stream) -> Result<(), ServiceError> {
        let Invocation { holder, params, streams, .. } = invocation;
        // There are no further streams: what a client opens is refused.
        drop(streams);
        let (send, receive) = stream.split();
        match role(&params)?.ok_or(Refused::Missing(ROLE))? {
            Role::Entity => entity::serve(&self.pending, holder, send, receive).await,
            Role::Requester => {
                requester::serve(&self.pending, self.node, holder, send, receive).await
            }
        }
    }
}

impl Service for Mediator {
    fn category(&self) -> &'static str {
        "mediation"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[(ROLE, "`entity` registers and decides, `requester` asks")]
    }

    fn check(&self, params: &Params, complete: bool) -> Result<(), Refused> {
        for (key, _) in params.iter() {
            match key {
                Params::FRAMING | ROLE => {}
                Params::ARGS => return Err(Refused::Arguments),
                _ => return Err(Refused::Unknown(key.to_owned())),
            }
        }
        match role(params)? {
            None if complete => Err(Refused::Missing(ROLE)),
            _ => Ok(()),
        }
    }

    fn run<'a>(&'a self, invocation: Invocation, stream: Stream) -> Running<'a> {
        Box::pin(self.serve(invocation, stream))
    }
}

fn role(params: &Params) -> Result<Option<Role>, Refused> {
    match params.value(ROLE) {
        None => Ok(None),
        Some(role) if role == ENTITY.as_bytes() => Ok(Some(Role::Entity)),
        Some(role) if role == REQUESTER.as_bytes() => Ok(Some(Role::Requester)),
        Some(_) => Err(Refused::Malformed(ROLE.to_owned())),
    }
}

/// The first message of somebody who has a session, or the next one that must come at once.
async fn expect(receive: &mut ReceiveHalf) -> Result<Part, ServiceError> {
    let part = timeout(FIRST_WORDS, mediation::receive(receive)).await;
    part.map_err(|_| ServiceError::Gone)??.ok_or(ServiceError::Gone)
}

/// Somebody who takes nothing has gone.
async fn deliver(send: &mut SendHalf, part: Part) -> Result<(), ServiceError> {
    timeout(DELIVERY, mediation::send(send, part)).await.map_err(|_| ServiceError::Gone)??;
    Ok(())
}

/// Says the last words, and ends the session.
async fn finish(mut send: SendHalf, receive: ReceiveHalf, part: Part) -> Result<(), ServiceError> {
    deliver(&mut send, part).await?;
    Ok(close(send, receive).await?)
}

fn entities() -> usize {
    64
}

fn questions() -> usize {
    64
}

fn questions_per_requester() -> usize {
    4
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let limit = usize::deserialize(deserializer)?;
    if !(1..=MAX_LIMIT).contains(&limit) {
        let text = format_args!("a limit is at least 1 and at most {MAX_LIMIT}");
        return Err(D::Error::custom(text));
    }
    Ok(limit)
}

fn malformed() -> ServiceError {
    StdioError::Malformed.into()
}

fn away(text: &str) -> Ended {
    Ended::new(Cause::Away, text)
}
