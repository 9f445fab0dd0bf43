//! The service `http`: a node's side, in front of an HTTP origin.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::StatusCode;
use levada_core::{Identity, Params};
use levada_service::{
    PreparedPathRun, PreparedRun, Refused, Service, ServiceError, ServiceType, check_none,
    definition_options,
};
use levada_session::contexts::{Path, PathSession, Right};
use serde::Deserialize;

use super::body;
use super::exchange::{self, ExchangeError, MessageContexts};
use super::head::{RequestHead, ResponseHead};
use super::layout::{Strategy, context_names, contexts};
use super::origin::{Origin, OriginConnection, OriginError, own_response};

definition_options! {
    /// The options of a definition of type `http`.
    struct Options {
        origin: String,
        #[serde(default)]
        middlebox: Vec<MiddleboxOptions>,
    }
}

/// A middlebox that clients may lead sessions through, and the most that it may be granted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MiddleboxOptions {
    identity: Identified,
    #[serde(default)]
    allow: String,
    #[serde(default)]
    required: bool,
}

/// An identity in its text form.
struct Identified(Identity);

impl<'de> Deserialize<'de> for Identified {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// The type `http`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("http", |definition, _, options: Options| {
        let service = Http::new(options);
        service.map(|service| Arc::new(service) as _).map_err(|error| {
            levada_service::DefinitionError::Option {
                name: definition.name.clone(),
                message: error,
            }
        })
    })
}

struct Http {
    origin: Origin,
    allowed: Arc<BTreeMap<Identity, Allowed>>,
}

struct Allowed {
    /// The most that may be granted, by context.
    rights: Vec<Right>,
    required: bool,
}

impl Http {
    fn new(options: Options) -> Result<Self, String> {
        let port = options.origin.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() {
            return Err("`origin`: expected host:port".to_owned());
        }
        let mut allowed = BTreeMap::new();
        for one in options.middlebox {
            let rights = contexts(Strategy::Four, &[&one.allow])
                .map_err(|error| format!("`allow`: {error}"))?;
            let rights = rights.iter().map(|context| context.rights[0]).collect();
            let allow = Allowed { rights, required: one.required };
            if allowed.insert(one.identity.0, allow).is_some() {
                return Err(format!("`middlebox`: {} is listed twice", one.identity.0));
            }
        }
        Ok(Self { origin: Origin { authority: options.origin }, allowed: Arc::new(allowed) })
    }

    /// Whether the configuration allows what a path grants.
    fn check_path(&self, path: &Path) -> Result<(), Refused> {
        let names = context_names(Strategy::Four);
        let purposes = path.contexts.iter().map(|context| context.purpose);
        if !purposes.eq(names.iter().map(|(_, purpose)| *purpose)) {
            return Err(Refused::NotAccepted("the contexts are not those of `http`".to_owned()));
        }
        for (hop, middlebox) in (1u8..).zip(&path.hops) {
            let identity = middlebox.party.identity;
            let allowed = self.allowed.get(&identity);
            for (number, (name, _)) in (1u8..).zip(names) {
                let most = allowed.and_then(|one| one.rights.get(usize::from(number) - 1).copied());
                let granted = path.right(number, hop);
                if most.is_none_or(|most| granted > most) {
                    let right = if granted == Right::Write { "write" } else { "read" };
                    return Err(Refused::NotAccepted(format!(
                        "middlebox {} ({hop}) may not {right} `{name}` here",
                        identity.short()
                    )));
                }
            }
        }
        let missing = self.allowed.iter().find(|(identity, allowed)| {
            allowed.required && !path.hops.iter().any(|hop| hop.party.identity == **identity)
        });
        match missing {
            None => Ok(()),
            Some((identity, _)) => {
                Err(Refused::NotAccepted(format!("this service requires the middlebox {identity}")))
            }
        }
    }
}

impl Service for Http {
    fn category(&self) -> &'static str {
        "network"
    }

    fn prepare(&self, params: &Params) -> Result<PreparedRun, Refused> {
        check_none(params)?;
        Err(Refused::NotAccepted("use `levada http --via`".to_owned()))
    }

    fn middleboxes(&self) -> Vec<Identity> {
        self.allowed.keys().copied().collect()
    }

    fn prepare_path(&self, params: &Params, path: &Path) -> Result<PreparedPathRun, Refused> {
        check_none(params)?;
        self.check_path(path)?;
        let (origin, path) = (self.origin.clone(), path.clone());
        let run = PreparedPathRun::new(move |session| async move {
            serve(&session, &path, origin).await.map_err(|error| match error {
                ExchangeError::Path(error) => error.into(),
                other => {
                    let _ = session.abort(other.to_string().as_bytes());
                    ServiceError::Failed(other.to_string())
                }
            })
        });
        Ok(run.with_context_names(context_names(Strategy::Four).iter().map(|(name, _)| *name)))
    }
}

/// Answers requests until the client has sent its end.
async fn serve(session: &PathSession, path: &Path, origin: Origin) -> Result<(), ExchangeError> {
    let requests = MessageContexts::of_requests(path)?;
    let responses = MessageContexts::of_responses(path)?;
    let mut connection = OriginConnection::new(origin);
    while let Some((head, incoming)) = exchange::receive(session, requests).await? {
        let (sender, body) = body::channel();
        let answer = async {
            let head = RequestHead::decode(&head)?;
            match connection.send(head, body).await {
                Ok((head, body)) => exchange::send(session, responses, &head.encode(), body).await,
                Err(error) => refuse(session, responses, &error).await,
            }
        };
        // The body of a request may end after its answer.
        let (answered, passed) = tokio::join!(answer, incoming.pass_body(sender));
        answered?;
        passed?;
    }
    session.close()?;
    session.flushed().await;
    Ok(())
}

/// Tells the client that the origin did not answer.
async fn refuse(
    session: &PathSession,
    contexts: MessageContexts,
    error: &OriginError,
) -> Result<(), ExchangeError> {
    let (parts, text) = own_response(StatusCode::BAD_GATEWAY, &error.to_string()).into_parts();
    let head = ResponseHead { status: parts.status, fields: parts.headers };
    exchange::send(session, contexts, &head.encode(), text).await
}
