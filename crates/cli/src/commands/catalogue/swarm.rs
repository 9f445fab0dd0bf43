//! Fetches a package from the nodes that provide it, and lets this home's node provide it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levada_catalogue::model::{Package, Published, digest_text};
use levada_client::control::{self, ControlError, ProvideRequest, Request};
use levada_client::{Client, Target};
use levada_config::Config;
use levada_core::{Identity, Random, SystemRandom, format_duration, format_size};
use levada_home::Home;
use levada_services::catalogue::{Admitted, CatalogueClient, MIN_PACKAGE};
use levada_services::swarm::join;
use levada_services::swarm::peer_network::{self, Listen};
use levada_swarm::content::PartialFile;
use levada_swarm::driver::{Get, Progress as Event};
use levada_swarm::mode::Mode;
use levada_swarm::{ContentId, Geometry};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use super::files::{digest, partial_name};
use crate::failure::Failure;
use crate::output::{self, plain};
use crate::progress::Progress;

/// How long no chunk may come before the package is fetched from the catalogue itself.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Events that wait to be shown.
const QUEUE: usize = 4096;

/// What the swarm of a catalogue at another node needs.
pub struct Peers {
    pub client: Arc<Client>,
    /// The catalogue's node.
    pub node: Target,
    /// Whether this home provides packages to others.
    pub provide: bool,
}

/// Where the bytes of a package came from.
#[derive(Debug, Default)]
pub struct Transfer {
    from_node: u64,
    from_peers: HashMap<Identity, u64>,
    sent: u64,
}

impl Transfer {
    /// Of a package that the catalogue itself has sent.
    pub fn of_catalogue(bytes: u64) -> Self {
        Self { from_node: bytes, ..Self::default() }
    }

    pub fn to_json(&self) -> Value {
        let peers = self.from_peers.iter().map(|(peer, bytes)| (peer.to_string(), json!(bytes)));
        json!({
            "from_node": self.from_node,
            "from_peers": peers.collect::<serde_json::Map<_, _>>(),
            "sent": self.sent,
        })
    }

    fn show(&self) {
        if self.from_peers.is_empty() {
            output::note("nothing came from other nodes: the catalogue's node has sent all");
            return;
        }
        output::note(format_args!(
            "{} came from the catalogue's node, {} from {} that provide{} the package",
            format_size(self.from_node),
            format_size(self.from_peers.values().sum::<u64>()),
            match self.from_peers.len() {
                1 => "1 node".to_owned(),
                nodes => format!("{nodes} nodes"),
            },
            if self.from_peers.len() == 1 { "s" } else { "" },
        ));
    }
}

/// Fetches the package of `found` to `path` from the nodes that provide it. `None` if there is
/// none, or it was not possible: then a note says why.
pub async fn fetch(
    peers: &Peers,
    catalogue: &mut CatalogueClient,
    (found, package): (&Published, &Package),
    path: &Path,
) -> Option<Transfer> {
    if package.length < MIN_PACKAGE {
        return None;
    }
    // Without providers there is nothing to join: the node of a home that provides joins later,
    // with the whole package.
    let fetched = match catalogue.admit(&found.key, &found.version, false).await {
        Ok(admitted) if admitted.providers == 0 => return None,
        Ok(admitted) => fetch_admitted(peers, admitted, (found, package), path).await,
        Err(error) => Err(error.to_string()),
    };
    match fetched {
        Ok(transfer) => {
            transfer.show();
            Some(transfer)
        }
        Err(error) => {
            let error = plain(&error);
            output::note(format_args!("not from other nodes, but from the catalogue: {error}"));
            None
        }
    }
}

async fn fetch_admitted(
    peers: &Peers,
    admitted: Admitted,
    (found, package): (&Published, &Package),
    path: &Path,
) -> Result<Transfer, String> {
    let Peers { client, node, provide } = peers;
    let granted = admitted.granted.ok_or("the catalogue admits no one")?;
    let capability = client.admitted(granted, node.clone(), &admitted.root).map_err(text)?;
    let (link, description, connection) = join(client, &capability).await.map_err(text)?;
    if description.is_mediated {
        return Err("the node shares the same content in mediated mode".to_owned());
    }
    let geometry = Geometry::new(package.length, description.chunk).map_err(text)?;
    let content = ContentId { root: admitted.root, geometry };
    let target = received_path(path, package);
    // Only a crash before the digest was compared leaves it.
    let _ = fs::remove_file(&target);
    let file = PartialFile::open(&target, content).map_err(text)?;
    // Who does not provide needs no port.
    let listen = if *provide { Listen::Free } else { Listen::Not };
    let (network, _accepting) = peer_network::open(client, listen, None).map_err(text)?;
    let (progress, events) = channel(QUEUE);
    let have = geometry.range(0).end * u64::from(file.have().count());
    let seed = seed();
    let mode = Mode::Direct;
    let upload = *provide;
    let get = Get { coordinator: link, mode, file, network, progress, seed, upload };
    let got = tokio::select! {
        got = get.run(std::future::ready(())) => got.map_err(text),
        error = follow(events, found, (have, package.length)) => Err(error),
    };
    connection.close(0, "");
    let got = got?;
    finish(&target, path, package)?;
    let mut transfer = Transfer { sent: got.sent, ..Transfer::default() };
    for (peer, bytes) in got.received {
        match peer {
            None => transfer.from_node += bytes,
            Some(peer) => *transfer.from_peers.entry(peer).or_default() += bytes,
        }
    }
    Ok(transfer)
}

/// Shows the progress. Returns why the download is given up, if it is.
async fn follow(
    mut events: Receiver<Event>,
    found: &Published,
    (mut have, length): (u64, u64),
) -> String {
    let bar = Progress::of_share(found.key.name.as_str(), length);
    loop {
        match timeout(STALL_TIMEOUT, events.recv()).await {
            Ok(Some(Event::Chunk { bytes, .. })) => {
                have += bytes;
                bar.set(have);
            }
            Ok(Some(Event::Neighbours(count))) => bar.set_note(&format!(", {count} nodes")),
            Ok(Some(Event::Wrong(_) | Event::Complete)) => {}
            // The download has ended, or waits for the disk.
            Ok(None) => std::future::pending().await,
            Err(_) if have >= length => std::future::pending().await,
            Err(_) => {
                return format!("nothing was received for {}", format_duration(STALL_TIMEOUT));
            }
        }
    }
}

/// Compares the digest, which is what was signed, and gives the file its name.
fn finish(from: &Path, to: &Path, package: &Package) -> Result<(), String> {
    let found = File::open(from).and_then(|mut file| digest(&mut file)).map_err(text)?;
    if found.0 == package.digest {
        return fs::rename(from, to).map_err(text);
    }
    fs::remove_file(from).map_err(text)?;
    let found = digest_text(&found.0);
    Err(format!("what the catalogue offers through the swarm has the digest {found}"))
}

/// Removes what an attempt has left that was given up.
pub fn discard(path: &Path, package: &Package) {
    let received = received_path(path, package);
    for end in ["", ".part", ".part.levada"] {
        let mut name = received.clone().into_os_string();
        name.push(end);
        // It is missing nearly always.
        let _ = fs::remove_file(name);
    }
}

/// The file in which a package is received; its incomplete forms have further endings.
fn received_path(path: &Path, package: &Package) -> PathBuf {
    let mut name = partial_name(path, package);
    name.push(".swarm");
    name.into()
}

/// Whether this home provides packages to others.
pub fn provides(home: &Home) -> Result<bool, Failure> {
    Ok(Config::load(&home.config_file())?.swarm.provide)
}

/// Lets the running node of this home provide a package that was fetched from `at` to `path`.
pub async fn hand_over(
    home: &Home,
    at: &str,
    (found, package): (&Published, &Package),
    path: &Path,
) {
    let request = async {
        let path = path.canonicalize().map_err(text)?;
        let request = Request::Provide(ProvideRequest {
            at: at.to_owned(),
            object: found.key.to_string(),
            version: found.version.to_string(),
            digest: digest_text(&package.digest),
            path,
        });
        match control::call(home, &request).await {
            Ok(answer) if answer["provided"] == true => {
                Ok("this home's node provides it to others")
            }
            Ok(_) => Err("restart the node, so that it reads `provide = true`".to_owned()),
            Err(ControlError::NotRunning) => Err("no node of this home is running".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    match request.await {
        Ok(done) => output::note(done),
        Err(error) => {
            output::note(format_args!("the package is not provided to others: {}", plain(&error)));
        }
    }
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    // The choices need no secret: a failure of the generator does not matter.
    let _ = SystemRandom.fill(&mut seed);
    u64::from_be_bytes(seed)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
