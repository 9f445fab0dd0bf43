//! `catalogue`: descriptors and packages, for peers that have a right to them.
//!
//! One protocol serves the stream of a session, the control socket of a node, and a process that
//! has opened the store itself. [`serve`] is its server, [`CatalogueClient`] its client.

mod admission;
mod batch;
mod blocking;
mod client;
pub mod descriptor;
mod handle;
mod low_priority;
mod maintenance;
mod message;
mod offer;
mod pipe;
mod query;
mod rules;
mod session;
#[cfg(test)]
mod tests;
mod upload;

use std::sync::Arc;

use levada_core::Params;
use levada_service::{
    Context, Definition, DefinitionError, Invocation, Over, Prepared, Refused, Service,
    ServiceError, ServiceType, definition_options,
};
use levada_session::Stream;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

pub use batch::{MAX_BATCH, MAX_BATCH_BYTES};
pub use blocking::HandleError;
pub use client::{Admitted, CatalogueClient, CatalogueError, ChangeOutcome, Item, Source};
pub use handle::CatalogueHandle;
pub use offer::{ADMISSION_TIME, MIN_PACKAGE, SwarmOffer};
pub use pipe::{PipeError, Receiver, Sender, of_bytes, of_stream};
pub use rules::{MAX_RULES, Right, Rights, Rule, RuleError};
pub use session::{Principal, ServeError, serve};

/// Default of the option `max_package`: the longest package that a session may publish, in bytes.
const MAX_PACKAGE: u64 = 256 * 1024 * 1024;

definition_options! {
    /// The options of a definition of type `catalogue`.
    struct Options {
        #[serde(default = "open")]
        open: bool,
        #[serde(default, deserialize_with = "rules")]
        rules: Vec<Rule>,
        #[serde(default = "max_package")]
        max_package: u64,
    }
}

/// The type `catalogue`, which serves the node's store. Without a store no definition of this type
/// is valid.
pub(crate) fn service_type(handle: Option<Arc<CatalogueHandle>>) -> ServiceType {
    ServiceType::new("catalogue", move |definition, context, options: Options| {
        Ok(Arc::new(Catalogue::new(definition, context, handle.clone(), options)?))
    })
}

/// The service of type `catalogue`.
struct Catalogue {
    handle: Arc<CatalogueHandle>,
    node: levada_core::Identity,
    /// The rights of the configuration: the upper bound of a session's.
    bound: Rights,
    max_package: u64,
}

impl Catalogue {
    fn new(
        definition: &Definition,
        context: &Context,
        handle: Option<Arc<CatalogueHandle>>,
        options: Options,
    ) -> Result<Self, DefinitionError> {
        let handle = handle.ok_or_else(|| DefinitionError::Machine {
            name: definition.name.clone(),
            text: "this node has no catalogue: remove `catalogue = false` from its configuration"
                .into(),
        })?;
        let mut bound = options.rules;
        if options.open {
            bound.push(Rule::all(Right::Read));
        }
        let bound = Rights::new(bound);
        let max_package = options.max_package;
        Ok(Self { handle, node: context.node, bound, max_package })
    }

    /// The rights that the parameters of a session name; `None` if they name none. Each rule must
    /// be within the configuration.
    fn rules(&self, params: &Params) -> Result<Option<Rights>, Refused> {
        let mut rules = None;
        for (key, _) in params.iter() {
            match key {
                Params::FRAMING => {}
                Params::ARGS => rules = params.args()?,
                _ => return Err(Refused::Unknown(key.to_owned())),
            }
        }
        let Some(texts) = rules else { return Ok(None) };
        if texts.len() > MAX_RULES {
            return Err(Refused::Malformed(Params::ARGS.to_owned()));
        }
        let parse = |text: &String| text.parse::<Rule>().map_err(|_| not_a_rule(text));
        let rules = texts.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        match rules.iter().find(|rule| !self.bound.covers(rule)) {
            Some(rule) => {
                let rule = rule.to_string();
                let text = format!("the right {rule:?} is more than this service grants");
                Err(Refused::NotAccepted(text))
            }
            None => Ok(Some(Rights::new(rules))),
        }
    }
}

fn not_a_rule(text: &str) -> Refused {
    Refused::NotAccepted(format!(
        "{text:?} is not a rule: expected `read`, `write` or `yank`, a space, and TYPE/NAME, or `admin */*`"
    ))
}

async fn run(
    handle: &CatalogueHandle,
    principal: &Principal,
    stream: Stream,
) -> Result<(), ServiceError> {
    serve(handle, principal, of_stream(stream)).await.map_err(|error| match error {
        ServeError::Pipe(PipeError::Stream(error)) => error.into(),
        ServeError::Pipe(PipeError::Stalled) => ServiceError::Gone,
        ServeError::Pipe(error) => ServiceError::Failed(error.to_string()),
        ServeError::Store(text) => ServiceError::Failed(text),
    })
}

impl Service for Catalogue {
    fn category(&self) -> &'static str {
        "information"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[(Params::ARGS, "rules: `read`, `write` or `yank`, and TYPE/NAME; `*` ends a name")]
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        let named = self.rules(params)?;
        let bound = self.bound.clone();
        let handle = self.handle.clone();
        let node = self.node;
        let max_package = self.max_package;
        // This service uses one stream; further streams of the client are refused.
        Ok(Prepared::stream(move |Invocation { holder, .. }, stream| async move {
            let rights = match named {
                Some(rights) => rights,
                // The holder of the node's key could change the configuration anyway.
                None if holder == node => Rights::all(),
                None => bound,
            };
            let principal = Principal { identity: Some(holder), rights, max_package };
            run(&handle, &principal, stream).await
        }))
    }

    /// The rules of the session.
    fn summary(&self, params: &Params) -> Option<String> {
        Some(params.args().ok()??.join(", "))
    }
}

fn open() -> bool {
    true
}

fn max_package() -> u64 {
    MAX_PACKAGE
}

fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Rule>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    if texts.len() > MAX_RULES {
        return Err(D::Error::custom(format_args!("a definition has at most {MAX_RULES} rules")));
    }
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}
