//! Lists sessions and the audit log.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use levada_client::control::Reply;
use levada_core::Identity;
use levada_home::known::Known;
use serde_json::{Value, json};

use crate::granted::{GrantedHop, GrantedPath, right_text};
use crate::node::Node;
use crate::store::{AuditEntry, SessionFilter, SessionSummary};

use super::reply::refused;

/// The newest sessions, with what runs of them.
pub(super) async fn sessions(node: &Arc<Node>, limit: u32) -> Result<Value, Reply> {
    let filter = SessionFilter { limit, ..SessionFilter::default() };
    let list = node.with_store(move |store| store.sessions(&filter)).await;
    let list = list.map_err(|error| refused(120, &error))?;
    let names = names(node).await?;
    let rows: Vec<Value> = list.iter().map(|session| session_row(node, session, &names)).collect();
    Ok(json!({ "sessions": rows }))
}

/// The pinned name of each identity; the oldest if it has several.
pub(super) async fn names(node: &Arc<Node>) -> Result<HashMap<Identity, String>, Reply> {
    let pins = node.client.with_known(Known::names).await;
    let mut pins = pins.map_err(|error| refused(120, &error))?;
    pins.sort_by_key(|pin| Reverse(pin.added));
    Ok(pins.into_iter().map(|pin| (pin.identity, pin.name)).collect())
}

fn session_row(node: &Node, session: &SessionSummary, names: &HashMap<Identity, String>) -> Value {
    json!({
        "session": session.id.to_string(),
        "service": session.service,
        "state": session.state.as_str(),
        "running": node.peers.sessions.runs_of(&session.id),
        "paths": paths(node, session, names),
        "framing": session.framing.to_string(),
        "requester": session.requester.to_string(),
        "requester_name": names.get(&session.requester),
        "holder": session.holder.to_string(),
        "holder_name": names.get(&session.holder),
        "created": session.created.0,
        "expires": session.expires.0,
        "started": session.started.map(|time| time.0),
        "ended": session.ended.map(|time| time.0),
        "starts": session.starts,
    })
}

/// What each running start through middleboxes has granted. Only the audit log keeps it after the
/// session's end.
fn paths(node: &Node, session: &SessionSummary, names: &HashMap<Identity, String>) -> Vec<Value> {
    let middlebox = |hop: &GrantedHop| {
        let rights =
            hop.rights.iter().map(|(name, right)| (name.clone(), right_text(*right).into()));
        json!({
            "identity": hop.identity.to_string(),
            "identity_name": names.get(&hop.identity),
            "address": hop.address,
            "rights": rights.collect::<serde_json::Map<String, Value>>(),
        })
    };
    let path = |path: &GrantedPath| {
        json!({
            "key_encapsulation": path.kem_name(),
            "resumed": path.resumed,
            "middleboxes": path.middleboxes.iter().map(middlebox).collect::<Vec<_>>(),
        })
    };
    node.peers.sessions.paths_of(&session.id).iter().map(path).collect()
}

/// The newest entries of the audit log.
pub(super) async fn log(node: &Arc<Node>, limit: u32) -> Result<Value, Reply> {
    let entries = node.with_store(move |store| store.audit(limit, None)).await;
    let entries = entries.map_err(|error| refused(120, &error))?;
    let names = names(node).await?;
    let rows: Vec<Value> = entries.iter().map(|entry| log_row(entry, &names)).collect();
    Ok(json!({ "log": rows }))
}

fn log_row(entry: &AuditEntry, names: &HashMap<Identity, String>) -> Value {
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
