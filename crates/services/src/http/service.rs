//! The service `http`: a node's side, in front of an HTTP origin.

use std::sync::Arc;

use levada_contexts::Path;
use levada_core::{Identity, Params};
use levada_service::{
    AllowedMiddlebox, Audience, Client, Definition, DefinitionError, Over, Prepared,
    PreparedPathRun, Refused, Service, ServiceType, check_none, definition_options,
};
use serde::Deserialize;

use super::allowed::{AllowedMiddleboxes, MiddleboxOptions};
use super::forwarded::Forwarding;
use super::origin::Origin;
use super::serve;

definition_options! {
    /// The options of a definition of type `http`.
    struct Options {
        origin: String,
        #[serde(default)]
        middlebox: Vec<MiddleboxOptions>,
        #[serde(default)]
        share: Share,
        #[serde(default)]
        trusted_fields: Vec<String>,
        #[serde(default)]
        forwarded: bool,
    }
}

/// Who may be given an answer that a cache on the path has stored.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Share {
    /// No other session.
    #[default]
    None,
    /// Every identity that may use the service.
    All,
}

/// The type `http`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("http", |definition: &Definition, context, options: Options| {
        let name = || definition.name.clone();
        let service = Http::new(options, context.client.clone());
        service
            .map(|service| Arc::new(service) as _)
            .map_err(|message| DefinitionError::Option { name: name(), message })
    })
}

struct Http {
    origin: Origin,
    middleboxes: AllowedMiddleboxes,
    share: Share,
    names: Arc<dyn Client>,
}

impl Http {
    fn new(options: Options, names: Arc<dyn Client>) -> Result<Self, String> {
        let forwarding = Forwarding::new(&options.trusted_fields, options.forwarded)?;
        if matches!(options.share, Share::All) && forwarding.varies() {
            let text = "not with `trusted_fields` or `forwarded`, by which an answer for one client may \
                        differ from that for another";
            return Err(format!("`share = \"all\"`: {text}"));
        }
        let middleboxes = AllowedMiddleboxes::new(options.middlebox)?;
        let origin = Origin::new(options.origin, forwarding)?;
        Ok(Self { origin, middleboxes, share: options.share, names })
    }

    fn prepare_stream(&self) -> Result<Prepared, Refused> {
        self.middleboxes.check_without()?;
        let origin = self.origin.clone();
        let names = self.names.clone();
        Ok(Prepared::stream(move |invocation, stream| {
            let origin = origin.for_user(name_of(&*names, invocation.holder));
            serve::streams(origin, invocation.streams, stream)
        }))
    }

    fn prepare_path(&self, path: &Path) -> Result<PreparedPathRun, Refused> {
        let layout = self.middleboxes.check(path)?;
        let origin = self.origin.clone();
        let names = self.names.clone();
        let path = path.clone();
        let run = PreparedPathRun::new(move |session| {
            let origin = origin.for_user(name_of(&*names, session.peer()));
            serve::path(origin, path, session)
        });
        let run = run.with_context_names(layout.names());
        Ok(match self.share {
            Share::None => run,
            Share::All => run.shared_with(Audience::All, self.origin.authority()),
        })
    }
}

impl Service for Http {
    fn category(&self) -> &'static str {
        "network"
    }

    fn prepare(&self, params: &Params, over: Over<'_>) -> Result<Prepared, Refused> {
        check_none(params)?;
        match over {
            Over::Stream => self.prepare_stream(),
            Over::Path(path) => self.prepare_path(path).map(Prepared::Path),
        }
    }

    fn middleboxes(&self) -> Vec<AllowedMiddlebox> {
        self.middleboxes.list()
    }
}

/// The name that is pinned to an identity, or the identity.
fn name_of(names: &dyn Client, identity: Identity) -> String {
    names.name_of(&identity).unwrap_or_else(|| identity.to_string())
}
