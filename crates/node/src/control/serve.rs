//! The node's side of the control socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levada_capability::{Invitation, SessionId};
use levada_catalogue::model::digest_text;
use levada_client::control::{ProvideRequest, Reply, Request};
use levada_core::{Identity, SystemRandom, check_name};
use levada_services::catalogue::{CatalogueHandle, Principal, of_bytes};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::error::UpError;
use crate::middlebox::NodeMiddlebox;
use crate::node::{Ending, Node};
use crate::rotate::rotate;
use crate::store::{DiskState, StoreError};
use levada_home::Home;
use levada_home::address::{self, advertised};

use super::reply::{check_service, on_store, refused, send};
use super::{access, explain, groups, identities, invitations, list, log, revoke, rights, share};

/// The maximum length of a request, in bytes.
const MAX_REQUEST: u64 = 64 * 1024;
/// The time in which a client must send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Listens on the control socket of `home`, and replaces the socket of a killed node. The caller
/// holds the home's lock.
pub(crate) fn bind(home: &Home) -> Result<UnixListener, UpError> {
    let path = home.control_socket();
    let failed = |error: std::io::Error| UpError(format!("{}: {error}", path.display()));
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    // Its folder is private already; the mode is a second protection.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Serves requests until the task is aborted.
pub(crate) async fn serve(node: Arc<Node>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_authorized(&stream) => {
                tokio::spawn(serve_connection(node.clone(), stream));
            }
            Ok(_) => tracing::warn!("refused a connection of another user to the control socket"),
            Err(error) => {
                tracing::warn!(%error, "the control socket failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Whether the peer is the node's user or root.
fn is_authorized(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

async fn serve_connection(node: Arc<Node>, stream: UnixStream) {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(MAX_REQUEST));
    match timeout(REQUEST_TIMEOUT, reader.read_line(&mut line)).await {
        Ok(Ok(_)) => {}
        _ => return,
    }
    let (reply, ending) = match serde_json::from_str::<Request>(&line) {
        Ok(Request::Catalogue) => match node.catalogue.clone() {
            Some(handle) => {
                // The client sends nothing more before the reply, so the reader's buffer is empty.
                let read = reader.into_inner().into_inner();
                return serve_catalogue(&node, &handle, read, write).await;
            }
            None => (Err(no_catalogue()), None),
        },
        Ok(Request::Share(request)) if request.settings.foreground => {
            return share::hold(&node, request, reader, write).await;
        }
        Ok(Request::Log { limit, filter, follow: true }) => {
            // As for the catalogue, the reader's buffer is empty.
            let read = reader.into_inner().into_inner();
            return log::follow(&node, limit, filter, read, write).await;
        }
        Ok(request) => handle(&node, request).await,
        Err(error) => (Err(refused(2, &error)), None),
    };
    let reply = match reply {
        Ok(value) => Reply::Ok(value),
        Err(reply) => reply,
    };
    let _ = send(&mut write, &reply).await;
    let _ = write.shutdown().await;
    // The reply is sent before the node ends.
    if let Some(ending) = ending {
        node.end(ending);
    }
}

/// Serves the catalogue to its owner until they close the socket or the node stops.
async fn serve_catalogue(
    node: &Node,
    handle: &CatalogueHandle,
    read: OwnedReadHalf,
    mut write: OwnedWriteHalf,
) {
    if send(&mut write, &Reply::Ok(json!({}))).await.is_err() {
        return;
    }
    let principal = Principal::owner();
    tokio::select! {
        served = levada_services::catalogue::serve(handle, &principal, of_bytes(read, write)) => {
            if let Err(error) = served {
                tracing::warn!(%error, "a session of the catalogue's owner failed");
            }
        }
        () = node.stopping() => {}
    }
}

fn no_catalogue() -> Reply {
    let text = "the running node has no catalogue: set `catalogue = true` in config.toml and restart the node";
    Reply::Error { exit_code: 120, text: text.into() }
}

/// The reply to a request, and the ending of the node that follows it.
type Handled = (Result<Value, Reply>, Option<Ending>);

async fn handle(node: &Arc<Node>, request: Request) -> Handled {
    let ending = match &request {
        Request::Stop => Some(Ending::Stop),
        Request::Restore { from } => Some(Ending::Restore(from.clone())),
        Request::Rotate { .. } => Some(Ending::Restart),
        _ => None,
    };
    let result = match request {
        Request::Status => status(node).await,
        Request::Stop => Ok(json!({ "process": std::process::id() })),
        Request::Drain { secs } => {
            let time = node.drain(Duration::from_secs(secs));
            Ok(json!({ "seconds": time.as_secs(), "running_sessions": node.all_running() }))
        }
        // `serve_connection` handles it.
        Request::Catalogue => Err(no_catalogue()),
        Request::Restore { .. } => Ok(json!({})),
        Request::Sessions { limit, running, filter } => {
            list::sessions(node, limit, running, filter).await
        }
        Request::Log { limit, filter, .. } => log::list(node, limit, filter).await,
        Request::Invite { service, name, expires_secs, addresses } => {
            invite(node, service, name, expires_secs, &addresses).await
        }
        Request::RevokeId { id } => revoke::revoke(node, id).await,
        Request::Access { identity } => rights::list(node, identity).await,
        Request::Explain { identity, service, params, expires_secs, uses } => {
            let wanted = (service, params, expires_secs, uses);
            explain::explain(node, identity, wanted).await
        }
        Request::Allow { identity, services, expires_secs, uses } => {
            access::allow(node, identity, services, expires_secs, uses).await
        }
        Request::RemoveAccess { identity, all: true, .. } => {
            access::remove_all(node, identity).await
        }
        Request::RemoveAccess { identity, service, .. } => {
            access::remove(node, identity, service).await
        }
        Request::Group(request) => groups::handle(node, request).await,
        Request::Invitations => invitations::list(node).await,
        Request::CancelInvitation { id } => invitations::cancel(node, id).await,
        Request::Share(request) => share::add(node, request).await,
        Request::Shares => share::list(node).await,
        Request::Provide(request) => provide(node, request).await,
        Request::StopShare { share } => share::stop(node, share).await,
        Request::RevokeTicket { ticket } => share::revoke(node, ticket).await,
        Request::Identities { beginning } => identities::find(node, beginning).await,
        Request::Disallow { identity } => revoke::disallow(node, identity).await,
        Request::Snapshot { to } => {
            on_store(node, move |store| store.snapshot(&to).map(|()| json!({}))).await
        }
        Request::BackUpCatalogue { to } => back_up_catalogue(node, to).await,
        Request::Rotate { keep } => rotate_key(node, &keep).await,
        Request::Integrity => {
            on_store(node, |store| store.integrity_check().map(|()| json!({}))).await
        }
        Request::AcceptClock => {
            let now = node.clock.now();
            on_store(node, move |store| store.accept_clock(now).map(|()| json!({}))).await
        }
    };
    let ending = if result.is_ok() { ending } else { None };
    (result, ending)
}

async fn provide(node: &Arc<Node>, request: ProvideRequest) -> Result<Value, Reply> {
    let provided = node.sharing.providing.add(request, node.now()).await;
    provided.map(|provided| json!({ "provided": provided })).map_err(|error| refused(120, &error))
}

async fn status(node: &Arc<Node>) -> Result<Value, Reply> {
    let now = node.rights.store.now(node.clock.now());
    let folder = node.home.state_folder().to_owned();
    let found = node.with_store(move |store| {
        Ok::<_, StoreError>((store.open_sessions()?, DiskState::of(&folder)))
    });
    let (open_sessions, disk) = found.await.map_err(|error| refused(120, &error))?;
    Ok(json!({
        "name": node.name,
        "identity": node.identity().to_string(),
        "process": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "home": node.home.state_folder().display().to_string(),
        "configuration": node.home.config_file().display().to_string(),
        "uptime_seconds": node.life.started.elapsed().as_secs(),
        "listening": node.network.listening.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "advertised": node.network.advertise,
        "addresses": address::reachable(&node.network.listening),
        "http": node.network.http.map(|address| address.to_string()),
        "services": node.services.keys().collect::<Vec<_>>(),
        "forwards": node.forwards.describe(),
        "groups": node.shared_groups(now.time).await,
        "middlebox": node.network.middlebox.as_ref().map(NodeMiddlebox::describe),
        "open_sessions": open_sessions,
        "running_sessions": node.peers.sessions.count(),
        "draining": node.drains_for().is_some(),
        "stops_within_seconds": node.drains_for().map(|time| time.as_secs()),
        "connections": node.peers.connections.count(),
        "catalogue": node.catalogue.is_some(),
        "catalogue_engine": node.catalogue.as_ref().and_then(|handle| handle.lag()).map(|lag| lag.to_string()),
        "disk": disk.as_str(),
        "time": now.time.0,
        "clock_jumped": now.jumped,
    }))
}

async fn invite(
    node: &Arc<Node>,
    service: Option<String>,
    name: Option<String>,
    expires_secs: u64,
    addresses: &[String],
) -> Result<Value, Reply> {
    service.iter().try_for_each(|name| check_service(node, name))?;
    for address in addresses {
        advertised(address).map_err(|error| refused(2, &format!("{address}: {error}")))?;
    }
    let pinned = match &name {
        Some(name) => pinned_guest(node, name).await?,
        None => None,
    };
    let secret =
        Invitation::generate_secret(&SystemRandom).map_err(|error| refused(120, &error))?;
    let hash = Invitation::hash(&secret);
    let addresses = node.addresses(addresses);
    let shown: Vec<_> = addresses.iter().map(|one| address::shown(one).to_owned()).collect();
    let invitation = Invitation::new(node.identity(), secret, addresses)
        .map_err(|error| refused(120, &error))?;
    let now = node.now();
    on_store(node, move |store| {
        let expires = now.after(Duration::from_secs(expires_secs));
        store.add_invitation(&hash, service.as_deref(), name.as_deref(), expires, now)?;
        let pinned = pinned.map(|identity| identity.to_string());
        let code = invitation.to_text();
        Ok(json!({
            "code": code.as_str(),
            "expires": expires.0,
            "pinned": pinned,
            "addresses": shown,
        }))
    })
    .await
}

/// The identity that has the name of a guest already: it may be invited again, as for a further
/// service.
async fn pinned_guest(node: &Node, name: &str) -> Result<Option<Identity>, Reply> {
    check_name(name).map_err(|error| refused(2, &format!("`{name}`: {error}")))?;
    let owned = name.to_owned();
    let pin = node.client.with_known(move |known| known.by_name(&owned)).await;
    Ok(pin.map_err(|error| refused(120, &error))?.map(|pin| pin.identity))
}

async fn rotate_key(node: &Arc<Node>, keep: &[String]) -> Result<Value, Reply> {
    let home = node.home.clone();
    let keep: Result<Vec<SessionId>, _> = keep.iter().map(|session| session.parse()).collect();
    let keep = keep.map_err(|error| refused(2, &error))?;
    let rotated = node.with_store(move |store| rotate(&home, store, &keep)).await;
    let (old, new) = rotated.map_err(|error| refused(120, &error))?;
    Ok(json!({ "old": old.to_string(), "identity": new.to_string() }))
}

async fn back_up_catalogue(node: &Node, to: PathBuf) -> Result<Value, Reply> {
    let Some(handle) = &node.catalogue else { return Ok(json!({ "kept": false })) };
    let missing = handle.with(move |store| store.back_up(&to)).await;
    let missing = missing.map_err(|error| refused(120, &error))?;
    let missing: Vec<String> = missing.iter().map(digest_text).collect();
    Ok(json!({ "kept": true, "missing": missing }))
}
