//! Provides packages of catalogues to others, with the catalogue's node as the coordinator of each.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fs, io};

use levada_catalogue::model::{Key, Version};
use levada_client::{Client, RequestSpec, Running, Verdict};
use levada_core::{Random, SystemRandom};
use levada_services::catalogue::{CatalogueClient, of_stream};
use levada_services::swarm::join;
use levada_session::Connection;
use levada_swarm::content::PartialFile;
use levada_swarm::driver::{Get, Link};
use levada_swarm::mode::Mode;
use levada_swarm::{ContentId, Description, Geometry};
use tokio::sync::mpsc::channel;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use levada_services::swarm::peer_network::{self, Listen};

use crate::catalogue::nodes::{Failures, in_random_order};
use crate::node::Node;
use crate::providing::{Package, Record};

/// The time between two looks for packages whose time is over.
const INTERVAL: Duration = Duration::from_secs(600);
/// The first pause before a catalogue is asked again; each further pause is twice as long.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// How long the catalogue may take to admit this node.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Provides the stored packages, and those that are added, until it is dropped.
pub(crate) async fn serve(node: Arc<Node>) {
    let providing = &node.sharing.providing;
    if !providing.is_enabled {
        // Copies are of no use to the user.
        let _ = fs::remove_dir_all(&providing.folder);
        return;
    }
    match providing.load() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, folder = %providing.folder.display(), "cannot read the provided packages");
        }
        _ => {}
    }
    let mut tasks = JoinSet::new();
    let mut running = BTreeMap::new();
    loop {
        let current = providing.current(node.now());
        // Dropped from the list: too old, or too many.
        running.retain(|name, task: &mut AbortHandle| {
            let is_current = current.contains_key(name);
            if !is_current {
                task.abort();
            }
            is_current
        });
        for (name, package) in current {
            let path = providing.folder.join(&name);
            running.entry(name).or_insert_with(|| {
                let client = Arc::new(node.client.unshared());
                tasks.spawn(async move { provide(client, &path, package).await })
            });
        }
        tokio::select! {
            () = providing.changed.notified() => {}
            () = sleep(INTERVAL) => {}
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Provides one package. A catalogue that is lost, or refuses, is asked again later.
async fn provide(client: Arc<Client>, path: &Path, package: Package) {
    let mut pause = MIN_PAUSE;
    loop {
        let start = Instant::now();
        let ended = provide_once(&client, path, &package).await;
        package.connected.store(false, Ordering::Relaxed);
        client.close();
        let Record { at, object, .. } = &package.record;
        tracing::debug!(%at, %object, ?ended, "a package is not provided now");
        if start.elapsed() > MAX_PAUSE {
            pause = MIN_PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Provides a package until the connection to its catalogue ends.
async fn provide_once(client: &Arc<Client>, path: &Path, package: &Package) -> Result<(), String> {
    let (link, description, connection, root) = join_at_one(client, &package.record).await?;
    if description.is_mediated {
        return Err("the node shares the same content in mediated mode".to_owned());
    }
    let geometry = Geometry::new(package.record.length, description.chunk).map_err(text)?;
    let path = path.to_owned();
    let id = ContentId { root, geometry };
    let file = spawn_blocking(move || PartialFile::complete(&path, id)).await.map_err(text)?;
    let file = file.map_err(text)?;
    let (network, _accepting) = peer_network::open(client, Listen::Free, None).map_err(text)?;
    // Nothing reads the reports, which are dropped.
    let (progress, _) = channel(1);
    let mut seed = [0; 8];
    // The choices need no secret: a failure of the generator does not matter.
    let _ = SystemRandom.fill(&mut seed);
    let seed = u64::from_be_bytes(seed);
    let mode = Mode::Direct;
    let get = Get { coordinator: link, mode, file, network, progress, seed, upload: true };
    package.connected.store(true, Ordering::Relaxed);
    let ended = get.run(async { drop(connection.closed().await) }).await;
    ended.map(drop).map_err(text)
}

/// A swarm: the link to its coordinator, what that says, the connection, and the hash of the
/// content.
type Joined = (Link, Description, Connection, [u8; 32]);

/// Joins the swarm at one of the nodes of the catalogue.
async fn join_at_one(client: &Client, record: &Record) -> Result<Joined, String> {
    let mut failures = Failures::default();
    for target in in_random_order(&record.at) {
        match timeout(JOIN_TIMEOUT, join_swarm(client, target, record)).await {
            Ok(Ok(joined)) => {
                failures.log_before(target);
                return Ok(joined);
            }
            Ok(Err(text)) => failures.add(target, text),
            Err(_) => failures.add(target, "the catalogue does not answer".to_owned()),
        }
    }
    Err(failures.text())
}

async fn join_swarm(client: &Client, target: &str, record: &Record) -> Result<Joined, String> {
    let (node, service) = target.rsplit_once('/').unwrap_or((target, ""));
    let key: Key = record.object.parse().map_err(text)?;
    let version = Version::parse(&record.version).map_err(text)?;
    let target = client.resolve(node, |_| Verdict::Unasked).await.map_err(text)?;
    let spec = RequestSpec { service: service.to_owned(), uses: 1, ..RequestSpec::default() };
    let capability = client.request(&target, spec).await.map_err(text)?;
    let Running { stream, connection, .. } = client.connect(&capability).await.map_err(text)?;
    let mut catalogue = CatalogueClient::new(of_stream(stream));
    let admitted = catalogue.admit(&key, &version, true).await;
    catalogue.finish().await;
    connection.close(0, "");
    let admitted = admitted.map_err(text)?;
    let granted = admitted.granted.ok_or("the catalogue does not admit this node")?;
    let capability = client.admitted(granted, target, &admitted.root).map_err(text)?;
    let (link, description, connection) = join(client, &capability).await.map_err(text)?;
    Ok((link, description, connection, admitted.root))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
