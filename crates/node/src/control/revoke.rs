//! Revokes rights for the command line, by the ids and identities in its tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_client::control::Reply;
use levada_core::wire::Reason;
use serde_json::{Value, json};

use super::identities::resolve;
use super::remaining::remaining;
use super::reply::{check_prefix, on_store, refused};
use crate::node::Node;
use crate::store::{EndError, Revocable};

/// Revokes the session or the link of a capability whose id begins with `id`.
pub(super) async fn revoke(node: &Arc<Node>, id: String) -> Result<Value, Reply> {
    check_prefix(&id)?;
    let prefix = id.clone();
    let found = node.with_store(move |store| store.revocable_with_prefix(&prefix)).await;
    let found = single(found.map_err(|error| refused(120, &error))?, &id)?;
    let found = found.ok_or_else(|| Reply::Error {
        exit_code: 1,
        text: format!("this node has no session and no capability with the id {id}"),
    })?;
    let by = node.identity();
    let now = node.now();
    let revoked = node.with_store(move |store| match &found {
        Revocable::Session(session) => store.revoke_session(session, &by, now),
        Revocable::Link { link, session } => store.revoke(link, session, &by, now),
    });
    match revoked.await {
        Ok(_) => Ok(end(node, &found)),
        Err(error @ EndError::UnknownSession) => Err(refused(1, &error)),
        Err(EndError::Store(error)) => Err(refused(120, &error)),
    }
}

/// Ends the runs of what was revoked.
fn end(node: &Node, found: &Revocable) -> Value {
    match found {
        Revocable::Session(session) => {
            let ended = node.peers.sessions.end_session(session, Reason::Revoked);
            json!({ "ended": ended, "session": session.to_string() })
        }
        Revocable::Link { link, .. } => {
            node.peers.sessions.end_link(link, Reason::Revoked);
            json!({ "capability": link.to_string() })
        }
    }
}

/// Revokes the rights that invitations gave to the identity `text`. The answer lists the sessions
/// that this does not end.
pub(super) async fn disallow(node: &Arc<Node>, text: String) -> Result<Value, Reply> {
    let identity = resolve(node, text).await?;
    let now = node.now();
    // TLS tickets from before the change must not resume connections.
    node.forget_sessions();
    let was_allowed = on_store(node, move |store| store.disallow(&identity, None, now)).await? > 0;
    node.close_unproved(&identity).await;
    Ok(json!({
        "was_allowed": was_allowed,
        "allowed_by_config": node.rights.policy.allows_any(&identity, now),
        "identity": identity.to_string(),
        "remaining": remaining(node, identity).await?,
    }))
}

/// The only match; an error that lists them if there are several.
fn single(found: BTreeSet<Revocable>, text: &str) -> Result<Option<Revocable>, Reply> {
    if found.len() > 1 {
        let candidates: Vec<String> = found.iter().map(describe).collect();
        let text =
            format!("several begin with {text}: {}; give more digits", candidates.join(", "));
        return Err(Reply::Error { exit_code: 2, text });
    }
    Ok(found.into_iter().next())
}

fn describe(found: &Revocable) -> String {
    match found {
        Revocable::Session(session) => format!("session {session}"),
        Revocable::Link { link, .. } => format!("capability {link}"),
    }
}
