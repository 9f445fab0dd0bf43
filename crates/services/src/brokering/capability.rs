//! `capability`: carries requests for capabilities (questions) to the entities that have
//! registered, and their replies back: Capone (secure channels and capabilities), figure
//! "Capability Request".
//!
//! The clients need not trust it: questions are signed, replies sealed
//! ([`levada_capability::exchange`]). It can only withhold them.

mod entity;
mod messages;
mod node;
mod pending;
mod requester;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use levada_core::{Identity, Params};
use levada_service::{
    Context, Entities, Invocation, Over, Prepared, Refused, Service, ServiceType,
    definition_options,
};
use levada_session::Stream;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::brokering::mediation::{ENTITY, REQUESTER, ROLE};
use pending::{Limits, PendingRequests};

/// The largest value of a limit.
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

/// The type `capability`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("capability", |_, context, options: Options| {
        Ok(Arc::new(Mediator::new(context, &options)))
    })
}

/// The service of type `capability`.
struct Mediator {
    node: Identity,
    pending: Arc<PendingRequests>,
}

/// The role of a session's client.
enum Role {
    Entity,
    Requester,
}

impl Mediator {
    /// A service without registered entities.
    fn new(context: &Context, options: &Options) -> Self {
        let limits = Limits {
            entities: options.entities,
            questions: options.questions,
            questions_per_requester: options.questions_per_requester,
        };
        Self { node: context.node, pending: Arc::new(PendingRequests::new(limits)) }
    }
}

impl Service for Mediator {
    fn category(&self) -> &'static str {
        "mediation"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[(ROLE, "`entity` registers and decides, `requester` asks")]
    }

    fn check(&self, params: &Params) -> Result<(), Refused> {
        role(params).map(drop)
    }

    fn entities(&self) -> Option<&dyn Entities> {
        Some(&*self.pending)
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        let role = role(params)?.ok_or(Refused::Missing(ROLE))?;
        let pending = self.pending.clone();
        let node = self.node;
        // Further streams that the client opens are refused.
        Ok(Prepared::stream(move |Invocation { holder, .. }, stream: Stream| async move {
            let (send, receive) = stream.split();
            match role {
                Role::Entity => entity::serve(&pending, holder, send, receive).await,
                Role::Requester => requester::serve(&pending, node, holder, send, receive).await,
            }
        }))
    }
}

fn role(params: &Params) -> Result<Option<Role>, Refused> {
    for (key, _) in params.iter() {
        match key {
            Params::FRAMING | ROLE => {}
            Params::ARGS => return Err(Refused::Arguments),
            _ => return Err(Refused::Unknown(key.to_owned())),
        }
    }
    match params.value(ROLE) {
        None => Ok(None),
        Some(role) if role == ENTITY.as_bytes() => Ok(Some(Role::Entity)),
        Some(role) if role == REQUESTER.as_bytes() => Ok(Some(Role::Requester)),
        Some(_) => Err(Refused::Malformed(ROLE.to_owned())),
    }
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
