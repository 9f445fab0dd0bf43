//! Checks of a configuration: its services, names, certificates, credentials and catalogue.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use levada_catalogue::store::NoStore;
use levada_core::{Identity, SystemClock};
use levada_home::Home;
use levada_home::known::Known;
use levada_service::Context;
use levada_services::catalogue::CatalogueHandle;
use levada_services::registry;

use crate::error::UpError;
use crate::http;
use crate::overrides::Overrides;
use crate::policy::{Configured, Inputs, Lists};
use crate::store::LocalGroup;
use crate::{ports, services};
use levada_config::{Config, ConfigError, Groups};

/// The problems that do not prevent a start.
#[derive(Debug, Default)]
pub struct Problems {
    /// The programs and folders that the services lack on this machine.
    pub missing: Vec<ConfigError>,
    /// Notes about rules that name no service of the node.
    pub rules: Vec<String>,
}

/// Checks services, names, certificates, credentials and catalogue of the node of `home`. Returns
/// the problems that do not prevent a start.
///
/// # Errors
/// [`UpError`] with the file, the line and the problem.
pub fn check(home: &Home, config: &Config, overrides: &Overrides) -> Result<Problems, UpError> {
    let names = Names::open(home)?;
    let lists = lists(config, overrides, &names.known, None)?;
    let groups = &lists.groups;
    check_servers(config, &names.known, groups).map_err(UpError::of)?;
    let clock = Arc::new(SystemClock);
    let is_wanted = overrides.only_catalogue || config.catalogue.wanted != Some(false);
    let catalogue =
        is_wanted.then(|| Arc::new(CatalogueHandle::new(Arc::new(NoStore), clock.clone())));
    // The services are built and not used, so that any identity will do.
    let context = Context::without_client(Identity::from_bytes([1; 32]));
    let builder = services::Builder { registry: registry(catalogue), context };
    let offered = services::offered(config, overrides, (&names.known, groups), &builder);
    let offered = offered.map_err(UpError::of)?;
    let ports = ports::wanted(config, overrides);
    if let Some((_, error)) = ports::repeated(&ports).find(|(port, _)| !port.is_of_forward()) {
        return Err(error);
    }
    if let Some(files) = overrides.http_tls.as_ref().or(config.http_tls.as_ref()) {
        http::Certificate::load(files)?;
    }
    if let Some(engine) = config.catalogue.engine.as_ref().filter(|_| is_wanted) {
        engine.options(clock).map_err(UpError::of)?;
    }
    if overrides.only_catalogue {
        return Ok(Problems::default());
    }
    let missing = services::missing(config, &overrides.services).map_err(UpError::of)?;
    // A rule that names a node cannot mean one that has no key yet.
    let key = home.existing_key().ok().flatten();
    let node = key.map_or(Identity::from_bytes([0; 32]), |key| key.identity());
    let offered: Vec<&str> = offered.keys().map(String::as_str).collect();
    Ok(Problems { missing, rules: lists.notes(&node, &offered) })
}

/// Checks the groups of the configuration together with the stored ones.
///
/// # Errors
/// [`UpError`] with the file, the line and the problem.
pub(super) fn check_groups(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
    groups: &[LocalGroup],
) -> Result<(), UpError> {
    let names = Names::open(home)?;
    lists(config, overrides, &names.known, Some(groups.to_vec())).map(drop)
}

/// The lists of the configuration, with the groups of the store if they can be read.
fn lists(
    config: &Config,
    overrides: &Overrides,
    known: &Known,
    groups: Option<Vec<LocalGroup>>,
) -> Result<Lists, UpError> {
    let configured = Configured::new(config, overrides, known).map_err(UpError::of)?;
    Lists::new(&Inputs::unchecked(configured, groups)).map_err(UpError::of)
}

fn check_servers(config: &Config, known: &Known, groups: &Groups) -> Result<(), ConfigError> {
    let mut servers = config.middlebox.iter().flat_map(|middlebox| &middlebox.servers);
    servers.try_for_each(|one| one.identities(known, groups).map(drop))
}

/// The pinned names of a home, which a check does not change.
pub struct Names {
    /// The names; none if the home has none.
    pub known: Known,
    /// Of a database that is missing or is migrated at the next start: it is opened as a copy.
    _folder: Option<tempfile::TempDir>,
}

impl Names {
    /// Opens the names of `home` to read them.
    ///
    /// # Errors
    /// [`UpError`] as for a start.
    pub fn open(home: &Home) -> Result<Self, UpError> {
        let file = home.known_db();
        let exists = fs::exists(&file).unwrap_or(true);
        if exists && let (known, true) = Known::examine(&file).map_err(UpError::of)? {
            return Ok(Self { known, _folder: None });
        }
        let folder = tempfile::tempdir().map_err(UpError::of)?;
        let copy = folder.path().join("known.db");
        if exists {
            for end in ["", "-wal"] {
                copy_if_exists(&with_end(&file, end), &with_end(&copy, end))?;
            }
        }
        Ok(Self { known: Known::open(&copy).map_err(UpError::of)?, _folder: Some(folder) })
    }
}

fn with_end(path: &Path, end: &str) -> OsString {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name
}

fn copy_if_exists(from: &OsString, to: &OsString) -> Result<(), UpError> {
    match fs::copy(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(UpError(format!("{}: {error}", Path::new(from).display())))
        }
        _ => Ok(()),
    }
}
