//! Serves the shares that the node has stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use levada_core::{Random, SystemRandom};
use levada_swarm::ChunkSize;
use levada_swarm::content::{ContentError, Source};
use levada_swarm::driver::ShareOptions;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::node::Node;
use crate::store::ShareRecord;

/// How the coordinator of a share serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSettings {
    /// The length of a chunk in bytes: a power of two from 1 KiB to 1 MiB.
    pub chunk: u32,
    /// The most that the coordinator sends, in bytes per second; `None` for no limit.
    pub upload_limit: Option<u64>,
}

/// Serves the stored shares whose files have not changed. They are read one after the other, because each is hashed.
pub(crate) async fn serve_stored(node: Arc<Node>) {
    let stored = match node.with_store(|store| store.shares()).await {
        Ok(stored) => stored,
        Err(error) => {
            tracing::error!(%error, "cannot read the shares");
            return;
        }
    };
    for share in stored {
        if let Err(error) = serve_one(&node, &share).await {
            tracing::warn!(share = share.id, %error, "a share is not served");
        }
    }
}

async fn serve_one(node: &Node, share: &ShareRecord) -> Result<(), ContentError> {
    let Some((paths, settings, chunk)) = parse(share) else { return Ok(()) };
    let changed = ContentError::Changed(paths.first().cloned().unwrap_or_default());
    let source = open(paths.clone(), chunk).await?;
    if source.id().root != share.root {
        return Err(changed);
    }
    serve(node, source, &paths, &settings);
    Ok(())
}

/// The paths, settings and chunk size of a stored share; None if a later version has stored it.
fn parse(share: &ShareRecord) -> Option<(Vec<PathBuf>, ShareSettings, ChunkSize)> {
    let paths: Vec<PathBuf> = serde_json::from_str(&share.paths).ok()?;
    let settings: ShareSettings = serde_json::from_str(&share.settings).ok()?;
    let chunk = ChunkSize::new(settings.chunk).ok()?;
    Some((paths, settings, chunk))
}

/// Reads and hashes files in the blocking pool.
///
/// # Errors
/// [`ContentError`], with the path.
pub(crate) async fn open(paths: Vec<PathBuf>, chunk: ChunkSize) -> Result<Source, ContentError> {
    let first = paths.first().cloned().unwrap_or_default();
    match spawn_blocking(move || Source::open(&paths, chunk)).await {
        Ok(opened) => opened,
        Err(error) => Err(ContentError::File { path: first, error: error.into() }),
    }
}

/// Serves `source`, under the name of its first file.
pub(crate) fn serve(node: &Node, source: Source, paths: &[PathBuf], settings: &ShareSettings) {
    let name = paths.first().and_then(|path| Path::file_name(path)).and_then(|name| name.to_str());
    let mut seed = [0; 8];
    // The choices need no secret: a failure of the generator does not matter.
    let _ = SystemRandom.fill(&mut seed);
    let options = ShareOptions {
        name: name.unwrap_or("share").to_owned(),
        upload_limit: settings.upload_limit,
        seed: u64::from_be_bytes(seed),
    };
    node.shares.start(source, options);
}
