//! The catalogue of this home while no node of it runs: a task of this process opens and serves the
//! store.

use std::path::Path;
use std::sync::Arc;

use levada_catalogue::store::embedded::EmbeddedStore;
use levada_config::Config;
use levada_core::SystemClock;
use levada_home::Home;
use levada_node::catalogue::{exists, open as open_store};
use levada_node::restore::finish_interrupted;
use levada_services::catalogue::{
    CatalogueClient, CatalogueHandle, Principal, ServeError, of_bytes, serve,
};
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::output::plain;

/// The buffer between the two ends within this process, in bytes.
const BUFFER: usize = 256 * 1024;

/// The treatment of a home without a catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// An error. A catalogue that a reading verb made would be served by the next `levada up`,
    /// and show the node's services over HTTP.
    #[default]
    Refuse,
    /// Makes the catalogue.
    Create,
    /// Uses an empty catalogue in a temporary folder, for `--dry-run`.
    Substitute,
}

/// The client of the store's protocol, and the task that serves it. The caller holds the home's
/// lock.
///
/// # Errors
/// [`Failure`] 120 if the home has no catalogue, or it cannot be opened.
pub fn open(
    home: &Home,
    missing: Missing,
) -> Result<(CatalogueClient, JoinHandle<Result<(), ServeError>>), Failure> {
    finish_interrupted(home).map_err(Failure::local)?;
    let config = Config::load(&home.config_file())?;
    // A catalogue that several nodes share exists in its engine, also before this home has a
    // replica.
    let exists = config.catalogue.engine.is_some() || exists(home, &config);
    let substitute = match missing {
        Missing::Refuse if !exists => return Err(no_catalogue(home)),
        Missing::Substitute if !exists => Some(tempfile::tempdir().map_err(Failure::local)?),
        _ => None,
    };
    let catalogue = match &substitute {
        Some(folder) => empty_store(folder.path())?,
        None => open_store(home, &config, Arc::new(SystemClock)).map_err(Failure::local)?,
    };
    let (near, far) = tokio::io::duplex(BUFFER);
    let (read, write) = tokio::io::split(far);
    let served = tokio::spawn(async move {
        let served = serve(&catalogue, &Principal::owner(), of_bytes(read, write)).await;
        // The folder is removed after its database is closed.
        drop(catalogue);
        drop(substitute);
        served
    });
    let (read, write) = tokio::io::split(near);
    Ok((CatalogueClient::new(of_bytes(read, write)), served))
}

/// An empty catalogue in `folder`.
fn empty_store(folder: &Path) -> Result<Arc<CatalogueHandle>, Failure> {
    let store = Arc::new(EmbeddedStore::open(folder).map_err(Failure::local)?);
    Ok(Arc::new(CatalogueHandle::new(store, Arc::new(SystemClock))))
}

fn no_catalogue(home: &Home) -> Failure {
    Failure::local(format!(
        "this home, {}, has no catalogue: `levada catalogue publish`, `import` or `serve` makes \
         one, or `catalogue = true` in config.toml and `levada up`; `--at NODE/catalogue` uses \
         that of a node",
        plain(&home.state_folder().display().to_string())
    ))
}
