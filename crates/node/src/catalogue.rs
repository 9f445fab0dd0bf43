//! The node's catalogue: where it lies, and what the node itself publishes in it.

mod publish;

use std::path::PathBuf;
use std::sync::Arc;

use levada_catalogue::store::StoreError;
use levada_catalogue::store::embedded::{DATABASE, EmbeddedStore};
use levada_core::Clock;
use levada_services::catalogue::CatalogueHandle;

use crate::config::{Config, ServiceSource};
use crate::error::UpError;
use crate::overrides::Overrides;
use crate::services::is_catalogue;
use levada_client::home::Home;

pub use publish::{Catalogued, service_of};
pub(crate) use publish::{publish_elsewhere, publish_here};

/// The folder of the catalogue of `home`.
pub fn folder(home: &Home, config: &Config) -> PathBuf {
    config.catalogue.folder.clone().unwrap_or_else(|| home.catalogue_folder())
}

/// Opens the catalogue of `home`; makes it if it is missing. Only the holder of the home's lock may do this.
///
/// # Errors
/// [`StoreError`] names the file and says what is wrong with it.
pub fn keep(
    home: &Home,
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Result<Arc<CatalogueHandle>, StoreError> {
    let store = EmbeddedStore::open(&folder(home, config))?;
    Ok(Arc::new(CatalogueHandle::new(Arc::new(store), clock)))
}

/// The catalogue of a node that starts: one is kept if the configuration wants it or a service needs it, or if there
/// is one already, because the verbs of this home reach it through the node alone.
pub(crate) fn open(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
    clock: Arc<dyn Clock>,
) -> Result<Option<Arc<CatalogueHandle>>, UpError> {
    let is_there = || folder(home, config).join(DATABASE).exists();
    // A file that cannot be read is told of when its service is built.
    let mut files = overrides.services.iter().filter_map(|file| ServiceSource::load(file).ok());
    let mut is_needed =
        || config.services.iter().any(is_catalogue) || files.any(|one| is_catalogue(&one));
    let wanted = match config.catalogue.wanted {
        _ if overrides.only_catalogue => true,
        Some(wanted) => wanted,
        None => is_there() || is_needed(),
    };
    if wanted { keep(home, config, clock).map(Some).map_err(UpError::of) } else { Ok(None) }
}
