//! Checks a configuration as a start of the node does, and changes nothing. A start begins with it, and
//! `levada doctor` and `levada up --check` are it: so they cannot differ.

use std::sync::Arc;

use levada_catalogue::store::NoStore;
use levada_client::home::Home;
use levada_client::known::Known;
use levada_core::{Identity, SystemClock};
use levada_service::Context;
use levada_services::catalogue::CatalogueHandle;
use levada_services::registry;

use crate::config::{Config, ConfigError};
use crate::error::UpError;
use crate::http;
use crate::overrides::Overrides;
use crate::services;

/// Checks services, names, certificates, credentials and catalogue of the node of `home`. Returns what its services
/// lack on this machine, which does not prevent a start.
///
/// # Errors
/// [`UpError`] with the file, the line and the problem.
pub fn check(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
) -> Result<Vec<ConfigError>, UpError> {
    let names = Names::open(home)?;
    check_names(config, &names.known).map_err(UpError::of)?;
    let clock = Arc::new(SystemClock);
    let is_wanted = overrides.only_catalogue || config.catalogue.wanted != Some(false);
    let catalogue =
        is_wanted.then(|| Arc::new(CatalogueHandle::new(Arc::new(NoStore), clock.clone())));
    // The services are built and not used, so that any identity will do.
    let context = Context::without_client(Identity::from_bytes([1; 32]));
    let builder = services::Builder { registry: registry(catalogue), context };
    services::offered(config, overrides, &names.known, &builder).map_err(UpError::of)?;
    if let Some(files) = overrides.http_tls.as_ref().or(config.http_tls.as_ref()) {
        http::Certificate::load(files)?;
    }
    if let Some(engine) = config.catalogue.engine.as_ref().filter(|_| is_wanted) {
        engine.options(clock).map_err(UpError::of)?;
    }
    match overrides.only_catalogue {
        true => Ok(Vec::new()),
        false => services::missing(config, &overrides.services).map_err(UpError::of),
    }
}

fn check_names(config: &Config, known: &Known) -> Result<(), ConfigError> {
    let servers = config.middlebox.iter().flat_map(|middlebox| &middlebox.servers);
    let allowed = config.allow.iter().map(|entry| &entry.identity);
    let mut all = allowed.chain(&config.block).chain(servers);
    all.try_for_each(|one| one.identity(known).map(drop))
}

/// The pinned names of a home, or none in a folder that is removed again: a check creates nothing.
struct Names {
    known: Known,
    _folder: Option<tempfile::TempDir>,
}

impl Names {
    fn open(home: &Home) -> Result<Self, UpError> {
        let (folder, file) = if home.known_db().exists() {
            (None, home.known_db())
        } else {
            let folder = tempfile::tempdir().map_err(UpError::of)?;
            let file = folder.path().join("known.db");
            (Some(folder), file)
        };
        Ok(Self { known: Known::open(&file).map_err(UpError::of)?, _folder: folder })
    }
}
