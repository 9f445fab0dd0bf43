//! The service `http`: a node's side, in front of an HTTP origin.

use std::sync::Arc;

use levada_core::Params;
use levada_service::{
    AllowedMiddlebox, Audience, Definition, DefinitionError, PreparedPathRun, PreparedRun, Refused,
    Service, ServiceType, check_none, definition_options,
};
use levada_session::contexts::Path;
use serde::Deserialize;

use super::allowed::{AllowedMiddleboxes, MiddleboxOptions};
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

impl From<Share> for Option<Audience> {
    fn from(share: Share) -> Self {
        match share {
            Share::None => None,
            Share::All => Some(Audience::All),
        }
    }
}

/// The type `http`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("http", |definition: &Definition, _, options: Options| {
        let name = || definition.name.clone();
        let service = Http::new(options);
        service
            .map(|service| Arc::new(service) as _)
            .map_err(|message| DefinitionError::Option { name: name(), message })
    })
}

struct Http {
    origin: Origin,
    middleboxes: AllowedMiddleboxes,
    share: Share,
}

impl Http {
    fn new(options: Options) -> Result<Self, String> {
        let port = options.origin.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() {
            return Err("`origin`: expected host:port".to_owned());
        }
        let middleboxes = AllowedMiddleboxes::new(options.middlebox)?;
        let origin = Origin { authority: options.origin };
        Ok(Self { origin, middleboxes, share: options.share })
    }
}

impl Service for Http {
    fn category(&self) -> &'static str {
        "network"
    }

    fn prepare(&self, params: &Params) -> Result<PreparedRun, Refused> {
        check_none(params)?;
        self.middleboxes.check_without()?;
        let origin = self.origin.clone();
        Ok(PreparedRun::new(move |invocation, stream| {
            serve::streams(origin, invocation.streams, stream)
        }))
    }

    fn middleboxes(&self) -> Vec<AllowedMiddlebox> {
        self.middleboxes.list()
    }

    fn prepare_path(&self, params: &Params, path: &Path) -> Result<PreparedPathRun, Refused> {
        check_none(params)?;
        let layout = self.middleboxes.check(path)?;
        let (origin, path) = (self.origin.clone(), path.clone());
        let run = PreparedPathRun::new(move |session| serve::path(origin, path, session));
        Ok(run.with_context_names(layout.names()).shared_with(self.share.into()))
    }
}
