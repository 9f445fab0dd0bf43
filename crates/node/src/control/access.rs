//! Changes the rights of identities, for the owner of the node.

use std::sync::Arc;
use std::time::Duration;

use levada_client::control::Reply;
use levada_config::{GROUP_PREFIX, RuleRight};
use levada_core::wire::Reason;
use levada_core::{Identity, UnixTime};
use serde_json::{Value, json};

use super::reply::{check_service, on_store, refused};
use super::{groups, identities};
use crate::node::Node;
use crate::store::NewRight;

/// Gives an identity the right to request `services`, or every service if there are none.
pub(super) async fn allow(
    node: &Arc<Node>,
    text: String,
    services: Vec<String>,
    expires_secs: Option<u64>,
    uses: Option<u32>,
) -> Result<Value, Reply> {
    if let Some(group) = text.strip_prefix(GROUP_PREFIX) {
        if uses.is_some() {
            let text = "a right of a group has no number of uses: give it to identities";
            return Err(refused(2, &text));
        }
        let expires = end(node, expires_secs);
        return groups::allow(node, group.to_owned(), services, expires).await;
    }
    let identity = identities::resolve(node, text).await?;
    services.iter().try_for_each(|name| check_service(node, name))?;
    if let Some(text) = node.denial_reason(&identity) {
        return Err(refused(1, &format!("{text}: a right would have no effect")));
    }
    let now = node.now();
    let expires = end(node, expires_secs);
    let given = services.clone();
    on_store(node, move |store| {
        let all: Vec<Option<&str>> = match services.is_empty() {
            true => vec![None],
            false => services.iter().map(|name| Some(name.as_str())).collect(),
        };
        all.into_iter().try_for_each(|service| {
            store.add_right(&NewRight { identity, service, expires, uses }, now)
        })
    })
    .await?;
    Ok(json!({ "identity": identity.to_string(), "services": given, "until": expires.0 }))
}

/// The time after this number of seconds.
fn end(node: &Node, expires_secs: Option<u64>) -> UnixTime {
    expires_secs.map_or(UnixTime::NEVER, |secs| node.now().after(Duration::from_secs(secs)))
}

/// Removes the rights of an identity to a service, or to all.
pub(super) async fn remove(
    node: &Arc<Node>,
    text: String,
    service: Option<String>,
) -> Result<Value, Reply> {
    if let Some(group) = text.strip_prefix(GROUP_PREFIX) {
        return groups::disallow(node, group.to_owned(), service).await;
    }
    let identity = identities::resolve(node, text).await?;
    service.iter().try_for_each(|name| check_service(node, name))?;
    let now = node.now();
    // TLS tickets from before the change must not resume connections.
    node.forget_sessions();
    let named = service.clone();
    let removed =
        on_store(node, move |store| store.disallow(&identity, named.as_deref(), now)).await?;
    node.close_unproved(&identity).await;
    // A right to every service may be left.
    let still = service.as_ref().filter(|name| node.may_request(&identity, name));
    Ok(json!({
        "identity": identity.to_string(),
        "rights": removed,
        "still_permitted": still,
        "configured": places(node, &identity, service.as_deref()),
        "remaining": super::remaining::remaining(node, identity).await?,
    }))
}

/// Removes every right of an identity, revokes what it requested, holds and has passed on, and ends
/// what it runs.
pub(super) async fn remove_all(node: &Arc<Node>, text: String) -> Result<Value, Reply> {
    if text.starts_with(GROUP_PREFIX) {
        let text = "`--all` is for one identity: `levada group ls` shows the members of a group";
        return Err(refused(2, &text));
    }
    let identity = identities::resolve(node, text).await?;
    let now = node.now();
    let own = node.identity();
    if identity == own {
        return Err(refused(2, &"this is the identity of the node itself"));
    }
    node.forget_sessions();
    let removed = on_store(node, move |store| store.remove_access(&identity, &own, now)).await?;
    let sessions = &node.peers.sessions;
    let by_session = removed.sessions.iter().map(|id| sessions.end_session(id, Reason::Revoked));
    let by_link = removed.links.iter().map(|id| sessions.end_link(id, Reason::Revoked));
    let mut ended: usize = by_session.chain(by_link).sum();
    // Also runs whose sessions expired while they ran, and runs that it has begun since.
    ended += sessions.end_identity(&identity, Reason::Revoked);
    node.close_unproved(&identity).await;
    Ok(json!({
        "identity": identity.to_string(),
        "rights": removed.rights,
        "sessions": removed.sessions.len(),
        "capabilities": removed.links.len(),
        "tickets": removed.tickets,
        "ended": ended,
        "configured": places(node, &identity, None),
    }))
}

/// The places of the configuration that still give `identity` a right to `service`, or any: entries
/// of `allow`, and rules that name it or a group of it.
fn places(node: &Node, identity: &Identity, service: Option<&str>) -> Vec<String> {
    let lists = node.rights.policy.lists();
    let rights = lists.of(identity).filter(|right| right.may_cover(service));
    let shown = |group: Option<&str>, place: String| match group {
        Some(group) => format!("{GROUP_PREFIX}{group} ({place})"),
        None => place,
    };
    let places = rights.map(|right| shown(right.group.as_deref(), right.place()));
    let own = node.identity();
    let may_cover =
        |right: &RuleRight<'_>| service.is_none_or(|service| right.services.matches(&own, service));
    let rules = lists.rules.rights_of(*identity, &own).filter(may_cover);
    let rules = rules.map(|right| shown(right.group, right.place.to_string()));
    let mut places: Vec<String> = places.chain(rules).collect();
    places.dedup();
    places
}
