//! Shares and their tickets, for the owner of the node.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use levada_capability::{SessionId, Ticket, TicketTerms};
use levada_client::control::{Paths, Reply, ShareRequest, ShareSettings};
use levada_core::wire::Reason;
use levada_core::{Digest, Identity, SystemRandom};
use levada_home::address::advertised;
use levada_swarm::ChunkSize;
use levada_swarm::content::{Source, check_name};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::OwnedWriteHalf;

use crate::node::Node;
use crate::shares;
use crate::store::TicketSummary;
use crate::store::{ExchangeError, NewShare, NewTicket, ShareRecord, Store, StoreError};

use super::identities::{names, resolve};
use super::reply::{on_store, refused, send};

/// The most links that an answer names.
const MAX_SHOWN: usize = 20;

/// Shares files, and issues a ticket. If the same is shared already, it gets a further ticket.
pub(super) async fn add(node: &Arc<Node>, request: ShareRequest) -> Result<Value, Reply> {
    for address in &request.addresses {
        advertised(address).map_err(|error| refused(2, &format!("{address}: {error}")))?;
    }
    if request.settings.udp.is_some() && !node.network.udp {
        let text = "the node does not listen on UDP; set `udp = true` in its config.toml and start it again, or share by TCP only";
        return Err(refused(2, &text));
    }
    let bound = match &request.to {
        Some(to) => Some(resolve(node, to.clone()).await?),
        None => None,
    };
    let Paths(files) = &request.paths;
    check_paths(files)?;
    let source = open(files, &request.settings).await?;
    let links = source.left_out();
    let left_out: Vec<_> =
        links.iter().take(MAX_SHOWN).map(|path| path.display().to_string()).collect();
    let left_out_count = links.len();
    let content = source.id();
    let secret = Ticket::generate_secret(&SystemRandom).map_err(|error| refused(120, &error))?;
    let now = node.now();
    let terms = TicketTerms {
        root: content.root,
        length: content.geometry.length(),
        expires: now.after(Duration::from_secs(request.expires_secs)),
        peers: request.peers,
        bound,
    };
    let hash = Ticket::hash(&secret);
    let ticket = Ticket::new(node.identity(), secret, terms, node.addresses(&request.addresses))
        .map_err(|error| refused(2, &error))?;
    let settings =
        serde_json::to_string(&request.settings).map_err(|error| refused(120, &error))?;
    let paths = json!(request.paths).to_string();
    let name = name_of(files);
    let answer = on_store(node, move |store| {
        let new = NewShare {
            name: &name,
            paths: &paths,
            root: terms.root,
            length: terms.length,
            settings: &settings,
        };
        let known = store.same_share(&new)?;
        let is_new = known.is_none();
        let share = known.map_or_else(|| store.add_share(&new, now), |known| Ok(known.id))?;
        let TicketTerms { expires, peers, bound, .. } = terms;
        store.add_ticket(&NewTicket { hash, share, expires, peers, bound }, now)?;
        Ok(json!({
            "share": share,
            "is_new": is_new,
            "ticket": ticket.to_text().as_str(),
            "ticket_id": Ticket::id(&hash),
            "length": terms.length,
            "expires": expires.0,
            "left_out": left_out,
            "left_out_count": left_out_count,
        }))
    })
    .await?;
    let source = shares::keep_hashes(node, source).await;
    if let Some((number, source)) = answer["share"].as_i64().zip(source) {
        shares::serve(node, number, source, files, &request.settings, 0);
    }
    Ok(answer)
}

/// As [`add`], and stops the share, if it is new, when the client closes the socket or ends.
pub(super) async fn hold(
    node: &Arc<Node>,
    request: ShareRequest,
    mut read: impl AsyncRead + Unpin,
    mut write: OwnedWriteHalf,
) {
    let reply = add(node, request).await;
    let is_new = |answer: &&Value| answer["is_new"] == true;
    let share = reply.as_ref().ok().filter(is_new).and_then(|answer| answer["share"].as_i64());
    let reply = reply.map_or_else(|reply| reply, Reply::Ok);
    let sent = send(&mut write, &reply).await;
    let Some(share) = share else { return };
    if sent.is_ok() {
        let mut end = [0];
        tokio::select! {
            _ = read.read(&mut end) => {}
            // The next start of the node ends it.
            () = node.stopping() => return,
        }
    }
    // A process that ends as it should has stopped it before.
    if let Err(Reply::Error { exit_code: 120, text }) = stop(node, share).await {
        tracing::error!(share, text, "cannot stop a share whose process has ended");
    }
}

/// The shares that were not stopped.
pub(super) async fn list(node: &Arc<Node>) -> Result<Value, Reply> {
    let rows = on_store(node, |store| {
        let shares = store.shares()?.into_iter();
        let rows = shares.map(|share| Ok((share.id, row(store, &share)?)));
        rows.collect::<Result<Vec<_>, StoreError>>()
    });
    let mut rows = rows.await?;
    let names = names(node).await?;
    for (number, row) in &mut rows {
        row["served"] = served(node, *number, &names).await;
        for ticket in row["tickets"].as_array_mut().into_iter().flatten() {
            let bound = ticket["bound"].as_str().and_then(|bound| bound.parse().ok());
            ticket["bound_name"] = json!(bound.and_then(|bound: Identity| names.get(&bound)));
        }
        row["not_served"] = json!(reason(node, row));
    }
    let shares = rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>();
    Ok(json!({ "shares": shares, "provided": node.sharing.providing.describe() }))
}

/// The tickets that an identity can still exchange for the first time: all, or those that only `of`
/// can exchange.
pub(super) async fn open_tickets(
    node: &Arc<Node>,
    of: Option<Identity>,
) -> Result<Vec<Value>, Reply> {
    let now = node.now();
    let found = on_store(node, move |store| {
        let mut open = Vec::new();
        for share in store.shares()? {
            let tickets = store.tickets(share.id)?.into_iter().filter(|one| one.is_open(now));
            let tickets = tickets.filter(|one| of.is_none() || one.bound == of);
            open.extend(tickets.map(|ticket| (share.name.clone(), ticket)));
        }
        Ok::<_, StoreError>(open)
    });
    let found = found.await?;
    let names = names(node).await?;
    let row = |(name, ticket): &(String, TicketSummary)| {
        json!({
            "id": Ticket::id(&ticket.hash),
            "share": ticket.share,
            "content": name,
            "bound": ticket.bound.map(|identity| identity.to_string()),
            "bound_name": ticket.bound.and_then(|identity| names.get(&identity)),
            "peers": ticket.peers,
            "exchanged": ticket.exchanged,
            "expires": ticket.expires.0,
        })
    };
    Ok(found.iter().map(row).collect())
}

/// Why a share is not served; `None` if it is.
fn reason(node: &Node, row: &Value) -> Option<String> {
    let not_served = node.sharing.not_served.lock().unwrap_or_else(PoisonError::into_inner);
    let number = row["share"].as_i64().filter(|_| row["served"].is_null())?;
    let reading = || "its files are being read".to_owned();
    Some(not_served.get(&number).cloned().unwrap_or_else(reading))
}

/// What the node does for a share now; null if it does not serve it.
async fn served(node: &Node, number: i64, names: &HashMap<Identity, String>) -> Value {
    let Some(share) = node.sharing.shares.get(number) else { return Value::Null };
    let status = share.status().await;
    let peers = status.peers.iter().map(|(identity, chunks)| {
        let udp = status.over_udp.contains(identity);
        let provider = *chunks > 0;
        json!({
            "identity": identity.to_string(), "name": names.get(identity), "chunks": chunks,
            "provider": provider, "udp": udp,
        })
    });
    let unreadable =
        status.unreadable.iter().map(|(chunk, reason)| json!({ "chunk": chunk, "reason": reason }));
    let counters = &status.counters;
    json!({
        "chunks": share.id().geometry.chunks(),
        "read": counters.loads,
        "read_again": counters.source_reads,
        "fetched": counters.fetches,
        "chunks_sent": counters.sent,
        "cache_hits": counters.cache_hits(),
        "peers": peers.collect::<Vec<_>>(),
        "sent": status.sent,
        "sent_rate": status.sent_rate,
        "received_rate": status.received_rate,
        "expelled": status.expelled.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unreadable": unreadable.collect::<Vec<_>>(),
    })
}

/// Stops a share, and ends the sessions of its peers.
pub(super) async fn stop(node: &Arc<Node>, share: i64) -> Result<Value, Reply> {
    let by = node.identity();
    let now = node.now();
    let stopped = node.with_store(move |store| {
        let record = store.shares()?.into_iter().find(|one| one.id == share);
        Ok::<_, StoreError>(record.zip(store.stop_share(share, &by, now)?))
    });
    let stopped = stopped.await.map_err(|error| refused(120, &error))?;
    let (record, sessions) = stopped.ok_or_else(|| Reply::Error {
        exit_code: 1,
        text: format!("this node has no share {share}; `levada swarm ls` lists them"),
    })?;
    shares::stop(node, &record).await;
    Ok(json!({ "share": share, "ended": end(node, &sessions) }))
}

/// Revokes the ticket whose id begins with `id`, and ends the sessions that it gave.
pub(super) async fn revoke(node: &Arc<Node>, id: String) -> Result<Value, Reply> {
    let by = node.identity();
    let now = node.now();
    let prefix = id.clone();
    let revoked = node.with_store(move |store| {
        let Some(hash) = ticket_with_prefix(store, &prefix)? else {
            return Err(ExchangeError::Unknown);
        };
        store.revoke_ticket(&hash, &by, now)
    });
    match revoked.await {
        Ok(sessions) => Ok(json!({ "ticket": id, "ended": end(node, &sessions) })),
        Err(ExchangeError::Unknown) => Err(Reply::Error {
            exit_code: 1,
            text: format!(
                "no share of this node has exactly one ticket {id}; `levada swarm ls` lists them"
            ),
        }),
        Err(error) => Err(refused(120, &error)),
    }
}

/// Ends the runs of revoked sessions, and returns their number.
fn end(node: &Node, sessions: &[SessionId]) -> usize {
    sessions.iter().map(|session| node.peers.sessions.end_session(session, Reason::Revoked)).sum()
}

/// The only ticket whose hash begins with the hexadecimal digits `prefix`.
fn ticket_with_prefix(store: &Store, prefix: &str) -> Result<Option<Digest>, StoreError> {
    let mut found = Vec::new();
    for share in store.shares()? {
        let tickets = store.tickets(share.id)?.into_iter().map(|ticket| ticket.hash);
        found.extend(tickets.filter(|hash| Ticket::id(hash).starts_with(prefix)));
    }
    Ok(if let [only] = found[..] { Some(only) } else { None })
}

/// Reads the files once.
async fn open(paths: &[PathBuf], settings: &ShareSettings) -> Result<Source, Reply> {
    let chunk = ChunkSize::new(settings.chunk).map_err(|error| refused(2, &error))?;
    let opened = shares::open(paths.to_vec(), shares::listing(settings), chunk, None).await;
    opened.map_err(|error| refused(120, &error))
}

/// Checks the paths, and the name of the first one, which the share gets: peers that cannot use it
/// refuse it.
fn check_paths(paths: &[PathBuf]) -> Result<(), Reply> {
    if let Some(path) = paths.iter().find(|path| !path.is_absolute()) {
        return Err(refused(2, &format!("{}: not an absolute path", path.display())));
    }
    let first = paths.first().and_then(|path| Path::file_name(path));
    first.map_or(Ok(()), |name| check_name(Path::new(name))).map_err(|error| refused(120, &error))
}

/// The name of the first file, and how many more there are.
fn name_of(paths: &[PathBuf]) -> String {
    let first = paths.first().and_then(|path| Path::file_name(path));
    let first = first.map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
    match paths.len() {
        0 | 1 => first,
        count => format!("{first} and {} more", count - 1),
    }
}

fn row(store: &Store, share: &ShareRecord) -> Result<Value, StoreError> {
    let tickets = store.tickets(share.id)?;
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    let shown = |text: &str| -> Vec<String> {
        let Paths(paths) = serde_json::from_str(text).unwrap_or_default();
        paths.iter().map(|path| path.display().to_string()).collect()
    };
    Ok(json!({
        "share": share.id,
        "name": share.name,
        "paths": shown(&share.paths),
        "root": share.root.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "length": share.length,
        "settings": parsed(&share.settings),
        "created": share.created.0,
        "peers": tickets.iter().map(|ticket| ticket.exchanged).sum::<u32>(),
        "tickets": tickets.iter().map(ticket_row).collect::<Vec<_>>(),
    }))
}

fn ticket_row(ticket: &TicketSummary) -> Value {
    json!({
        "ticket": Ticket::id(&ticket.hash),
        "expires": ticket.expires.0,
        "peers": ticket.peers,
        "exchanged": ticket.exchanged,
        "bound": ticket.bound.map(|identity| identity.to_string()),
        "revoked": ticket.revoked.map(|time| time.0),
    })
}
