//! The node's catalogue: its location, and the services that the node publishes.

pub(crate) mod nodes;
mod publish;

use std::path::PathBuf;
use std::sync::Arc;

use levada_catalogue::store::cluster::ClusterStore;
use levada_catalogue::store::embedded::{DATABASE, EmbeddedStore, Examined};
use levada_catalogue::store::{Store, StoreError};
use levada_core::Clock;
use levada_services::catalogue::CatalogueHandle;

use crate::error::UpError;
use crate::overrides::Overrides;
use crate::services::is_catalogue;
use levada_config::{Config, ServiceSource};
use levada_home::Home;

pub(crate) use publish::{publish_elsewhere, publish_here};

/// The folder of a replica, in that of the catalogue. A catalogue of this node alone may stay
/// beside it.
const REPLICA: &str = "replica";
/// The folder of a restored snapshot, in that of the catalogue.
const RESTORED: &str = "restored";

/// The folder of the catalogue of `home`.
pub fn folder(home: &Home, config: &Config) -> PathBuf {
    config.catalogue.folder.clone().unwrap_or_else(|| home.catalogue_folder())
}

/// Where a restore places the catalogue of a backup. If several nodes share the catalogue of
/// `home`, that is a folder beside the replica: the node follows the engine, and only an import
/// publishes what is there.
pub fn restored_folder(home: &Home, config: &Config) -> PathBuf {
    let folder = folder(home, config);
    if config.catalogue.engine.is_some() { folder.join(RESTORED) } else { folder }
}

/// Whether `home` has a catalogue on its disk; of one that several nodes share, a replica.
pub fn exists(home: &Home, config: &Config) -> bool {
    let folder = folder(home, config);
    match config.catalogue.engine {
        None => folder.join(DATABASE).exists(),
        Some(_) => ClusterStore::exists(&folder.join(REPLICA)),
    }
}

/// Opens the catalogue of `home`; creates it if it is missing. The caller holds the home's lock.
///
/// # Errors
/// [`StoreError`] names the file and the problem.
pub fn open(
    home: &Home,
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Result<Arc<CatalogueHandle>, StoreError> {
    let folder = folder(home, config);
    let store: Arc<dyn Store> = match &config.catalogue.engine {
        None => Arc::new(EmbeddedStore::open(&folder)?),
        Some(engine) => {
            let options = engine.options(clock.clone())?;
            Arc::new(ClusterStore::open(&folder.join(REPLICA), &options)?)
        }
    };
    Ok(Arc::new(CatalogueHandle::new(store, clock)))
}

/// As [`open`], for a check: opens the database to read it, and changes nothing. `None` if it is
/// missing.
///
/// # Errors
/// [`StoreError`] as for [`open`]; the engine is not contacted.
pub(crate) fn examine(home: &Home, config: &Config) -> Result<Option<Examined>, StoreError> {
    let folder = folder(home, config);
    match &config.catalogue.engine {
        None => EmbeddedStore::examine(&folder),
        Some(_) => ClusterStore::examine(&folder.join(REPLICA)),
    }
}

/// Opens the catalogue of a starting node, if it is needed.
pub(crate) fn open_if_needed(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
    clock: Arc<dyn Clock>,
) -> Result<Option<Arc<CatalogueHandle>>, UpError> {
    match is_needed(home, config, overrides) {
        true => self::open(home, config, clock).map(Some).map_err(UpError::of),
        false => Ok(None),
    }
}

/// Returns true if a node has a catalogue: if the configuration enables it, a service needs it, or
/// it exists already, because the verbs of this home can reach it only through the node.
pub(crate) fn is_needed(home: &Home, config: &Config, overrides: &Overrides) -> bool {
    let exists = || folder(home, config).join(DATABASE).exists();
    // An unreadable file is reported when its service is built.
    let mut files = overrides.services.iter().filter_map(|file| ServiceSource::load(file).ok());
    let mut has_service =
        || config.services.iter().any(is_catalogue) || files.any(|one| is_catalogue(&one));
    match config.catalogue.wanted {
        _ if overrides.only_catalogue => true,
        Some(wanted) => wanted,
        None => exists() || has_service(),
    }
}
