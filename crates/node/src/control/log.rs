//! Lists the audit log, and follows it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use levada_client::control::{Filter, Reply};
use levada_core::{Identity, UnixTime};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{sleep, timeout};

use super::identities::names;
use super::list::{MAX_LISTED, resolve_by};
use super::reply::{on_store, refused, send};
use crate::node::Node;
use crate::store::{AuditEntry, AuditFilter};

/// The entries that are read and sent at a time.
const BATCH: u32 = 500;
/// The time in which a client must accept a batch.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which the ends of sessions are recorded when the node stops.
const LAST_ENTRIES: Duration = Duration::from_secs(5);
/// The time after which a client that does not accept entries is left when the node stops.
const LAST_SENT: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(50);

/// The newest entries of the audit log.
pub(super) async fn list(node: &Arc<Node>, limit: u32, filter: Filter) -> Result<Value, Reply> {
    let filter = resolved(node, filter).await?;
    let limit = limit.min(MAX_LISTED);
    let entries = on_store(node, move |store| store.newest_entries(&filter, limit)).await?;
    let names = names(node).await?;
    let rows: Vec<Value> = entries.iter().map(|entry| row(entry, &names)).collect();
    Ok(json!({ "log": rows }))
}

async fn resolved(node: &Arc<Node>, filter: Filter) -> Result<AuditFilter, Reply> {
    let by = resolve_by(node, filter.by).await?;
    let since = UnixTime(filter.since.unwrap_or_default());
    Ok(AuditFilter { by, service: filter.service, since, after: 0 })
}

fn row(entry: &AuditEntry, names: &HashMap<Identity, String>) -> Value {
    json!({
        "id": entry.id,
        "time": entry.time.0,
        "identity": entry.identity.map(|identity| identity.to_string()),
        "identity_name": entry.identity.and_then(|identity| names.get(&identity)),
        "operation": entry.operation,
        "service": entry.service,
        "session": entry.session.map(|session| session.to_string()),
        "capability": entry.link.map(|link| link.to_string()),
        "outcome": entry.outcome,
        "text": entry.text,
    })
}

/// Sends the newest entries, and then each new one, until the client closes the socket or the node
/// ends.
pub(super) async fn follow(
    node: &Arc<Node>,
    limit: u32,
    filter: Filter,
    mut read: OwnedReadHalf,
    mut write: OwnedWriteHalf,
) {
    let (reply, filter) = match resolved(node, filter).await {
        Ok(_) if limit == 0 => (refused(2, &"give a limit of at least 1 entry"), None),
        Ok(filter) => (Reply::Ok(json!({})), Some(filter)),
        Err(reply) => (reply, None),
    };
    let sent = send(&mut write, &reply).await;
    let (Ok(()), Some(filter)) = (sent, filter) else { return };
    // The client has received the reply when it sends the line end.
    if !matches!(timeout(SEND_TIMEOUT, read.read_u8()).await, Ok(Ok(_))) {
        return;
    }
    let followed = send_entries(node, limit.min(MAX_LISTED), filter, &mut write);
    tokio::select! {
        followed = followed => if let Err(error) = followed {
            tracing::debug!(%error, "a client of the audit log went away");
        },
        // Nothing more is expected of the client.
        _ = read.read_u8() => {}
        () = stopped(node) => {}
    }
    let _ = write.shutdown().await;
}

/// Waits until the node has been stopping for [`LAST_SENT`].
async fn stopped(node: &Node) {
    node.stopping().await;
    sleep(LAST_SENT).await;
}

async fn send_entries(
    node: &Arc<Node>,
    limit: u32,
    mut filter: AuditFilter,
    write: &mut OwnedWriteHalf,
) -> io::Result<()> {
    let mut changes = node.rights.store.changes();
    let first = filter.clone();
    let newest = node.with_store(move |store| store.newest_entries(&first, limit)).await;
    let mut newest = newest.map_err(io::Error::other)?;
    newest.reverse();
    filter.after = newest.last().map_or(0, |last| last.id);
    send_rows(node, &newest, write).await?;
    loop {
        let is_last = tokio::select! {
            _ = changes.changed() => false,
            () = node.stopping() => true,
        };
        if is_last {
            wait_for_ends(node).await;
        }
        send_new(node, &mut filter, write).await?;
        if is_last {
            return Ok(());
        }
    }
}

/// Waits, at most five seconds, until the ends of the sessions of a stopping node are recorded.
async fn wait_for_ends(node: &Node) {
    let ended = async {
        while node.peers.sessions.count() > 0 {
            sleep(STEP).await;
        }
        sleep(STEP).await;
    };
    let _ = timeout(LAST_ENTRIES, ended).await;
}

async fn send_new(
    node: &Arc<Node>,
    filter: &mut AuditFilter,
    write: &mut OwnedWriteHalf,
) -> io::Result<()> {
    loop {
        let next = filter.clone();
        let found = node.with_store(move |store| store.next_entries(&next, BATCH)).await;
        let (found, after) = found.map_err(io::Error::other)?;
        filter.after = after;
        send_rows(node, &found, write).await?;
        if found.len() < BATCH as usize {
            return Ok(());
        }
    }
}

async fn send_rows(
    node: &Arc<Node>,
    entries: &[AuditEntry],
    write: &mut OwnedWriteHalf,
) -> io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let names = names(node).await.unwrap_or_default();
    let mut bytes = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut bytes, &row(entry, &names))?;
        bytes.push(b'\n');
    }
    timeout(SEND_TIMEOUT, write.write_all(&bytes)).await?
}
