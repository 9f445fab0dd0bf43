//! Lists sessions.

use std::collections::HashMap;
use std::sync::Arc;

use levada_client::control::{Filter, Reply};
use levada_core::{Identity, UnixTime};
use serde_json::{Value, json};

use super::identities::{self, names};
use super::reply::on_store;
use crate::granted::{GrantedHop, GrantedPath, right_text};
use crate::live::Run;
use crate::node::Node;
use crate::store::{SessionFilter, SessionState, SessionSummary};

/// The maximum number of rows in a list.
pub(super) const MAX_LISTED: u32 = 10_000;

/// The sessions that run, then the newest others.
pub(super) async fn sessions(
    node: &Arc<Node>,
    limit: u32,
    only_running: bool,
    filter: Filter,
) -> Result<Value, Reply> {
    let by = resolve_by(node, filter.by).await?;
    let service = filter.service;
    let runs = node.peers.sessions.all();
    let is_listed = |run: &&Run| {
        by.is_none_or(|by| run.concerns(&by))
            && service.as_ref().is_none_or(|name| *name == run.service)
    };
    let running = runs.iter().filter(is_listed).map(|run| run.session).collect();
    let limit = limit.min(MAX_LISTED);
    let since = UnixTime(filter.since.unwrap_or_default());
    let filter = SessionFilter { running, only_running, by, service, since, limit };
    let list = on_store(node, move |store| store.sessions(&filter)).await?;
    let names = names(node).await?;
    let now = node.now();
    let rows = list.iter().map(|session| session_row(session, &runs, &names, now));
    Ok(json!({ "sessions": rows.collect::<Vec<_>>() }))
}

/// The identity of a condition.
pub(super) async fn resolve_by(
    node: &Arc<Node>,
    by: Option<String>,
) -> Result<Option<Identity>, Reply> {
    match by {
        Some(text) => identities::resolve(node, text).await.map(Some),
        None => Ok(None),
    }
}

fn session_row(
    session: &SessionSummary,
    runs: &[Run],
    names: &HashMap<Identity, String>,
    now: UnixTime,
) -> Value {
    let runs: Vec<&Run> = runs.iter().filter(|run| run.session == session.id).collect();
    json!({
        "session": session.id.to_string(),
        "service": session.service,
        "state": state(session, runs.len(), now),
        "running": runs.len(),
        "paths": runs.iter().filter_map(|run| run.path.as_ref()).map(|path| path_row(path, names))
            .collect::<Vec<_>>(),
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
        "uses": session.uses,
    })
}

/// The present state of a session: `running`, `ready` to be started, `used up`, `expired`,
/// `revoked`, or `terminated`.
fn state(session: &SessionSummary, runs: usize, now: UnixTime) -> &'static str {
    match session.state {
        _ if runs > 0 => "running",
        SessionState::Requested | SessionState::Started if session.has_expired(now) => "expired",
        SessionState::Requested | SessionState::Started if session.starts_left(now) > 0 => "ready",
        SessionState::Requested | SessionState::Started => "used up",
        ended => ended.as_str(),
    }
}

/// The grants of a running start through middleboxes. Only the audit log keeps it after the end
/// of the session.
fn path_row(path: &GrantedPath, names: &HashMap<Identity, String>) -> Value {
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
    json!({
        "key_encapsulation": path.kem_name(),
        "resumed": path.resumed,
        "middleboxes": path.middleboxes.iter().map(middlebox).collect::<Vec<_>>(),
    })
}
