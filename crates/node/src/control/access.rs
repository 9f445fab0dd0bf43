//! Shows and changes the rights of identities, for the owner of the node.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use levada_capability::{SWARM, SessionId};
use levada_client::control::Reply;
use levada_core::wire::Reason;
use levada_core::{Identity, UnixTime};
use serde_json::{Value, json};

use super::identities::names;
use super::reply::{check_service, on_store, refused};
use super::{groups, identities, invitations, share};
use crate::live::Run;
use crate::node::Node;
use crate::policy::{ListedRight, Origin};
use crate::store::{AccessCapability, AccessRight, NewRight, StoreError};
use levada_config::GROUP_PREFIX;

/// The maximum number of sessions whose capabilities are listed.
const MAX_SESSIONS: usize = 1000;

/// One line of the list.
struct Entry {
    identity: Identity,
    /// The service; `None` for every service.
    service: Option<String>,
    /// The origin of the right, in one word, or the group that gives it.
    from: String,
    /// The place in the configuration, or the id of the session.
    detail: Option<String>,
    until: UnixTime,
    /// The uses that are left; `None` for any number.
    uses: Option<u32>,
    /// The session of a capability.
    session: Option<SessionId>,
}

/// The identities that may use services, and what gives them the right: all, or one of them.
pub(super) async fn list(node: &Arc<Node>, only: Option<String>) -> Result<Value, Reply> {
    let group = only.as_ref().filter(|text| text.starts_with(GROUP_PREFIX)).cloned();
    let only = match only {
        Some(text) if group.is_none() => Some(identities::resolve(node, text).await?),
        _ => None,
    };
    let is_shown = |identity: &Identity| only.is_none_or(|only| only == *identity);
    let is_of_group = |entry: &Entry| group.as_ref().is_none_or(|group| entry.from == *group);
    let is_all = only.is_none() && group.is_none();
    let runs = node.peers.sessions.all();
    let (stored, blocked) = stored(node, &runs).await?;
    let mut entries = configured(node);
    entries.extend(stored);
    // What is denied has no use; the blocked identities are listed below.
    entries.retain(|one| is_shown(&one.identity) && is_of_group(one));
    entries.retain(|one| node.denial_reason(&one.identity).is_none());
    let last = last_starts(node, &entries).await?;
    let names = names(node).await?;
    let rows = entries.iter().map(|entry| row(node, entry, &names, &runs, &last));
    let blocked = blocked.iter().filter(|identity| is_shown(identity));
    let blocked = blocked
        .map(|identity| json!({ "identity": identity.to_string(), "name": names.get(identity) }));
    Ok(json!({
        "access": rows.collect::<Vec<_>>(),
        "blocked": blocked.collect::<Vec<_>>(),
        "invitations": if is_all { invitations::rows(node).await? } else { Vec::new() },
        "tickets": match group {
            None => share::open_tickets(node, only).await?,
            Some(_) => Vec::new(),
        },
    }))
}

/// The rights and capabilities of the store, and all blocked identities.
async fn stored(node: &Arc<Node>, runs: &[Run]) -> Result<(Vec<Entry>, BTreeSet<Identity>), Reply> {
    let now = node.now();
    let own = node.identity();
    let running: HashSet<SessionId> = runs.iter().map(|run| run.session).collect();
    let found = on_store(node, move |store| {
        let capabilities = store.access_capabilities(&own, &running, now, MAX_SESSIONS)?;
        Ok::<_, StoreError>((store.access_rights()?, capabilities, store.all_blocked()?))
    });
    let (rights, capabilities, mut blocked) = found.await?;
    blocked.extend(node.rights.policy.blocked());
    let rights = rights.into_iter().filter(|right| right.is_valid(now)).map(Entry::from);
    let capabilities = capabilities.into_iter().filter(|one| one.identity != own);
    let entries = rights.chain(capabilities.map(Entry::from)).collect();
    Ok((entries, blocked.into_iter().collect()))
}

/// The rights of the configuration and the command line, and the middleboxes of services.
fn configured(node: &Node) -> Vec<Entry> {
    let mut entries = Vec::new();
    let now = node.now();
    let lists = node.rights.policy.lists();
    for right in lists.rights.iter().filter(|right| right.is_valid(now)) {
        match &right.services {
            None => entries.push(Entry::configured(right, None)),
            Some(services) => entries.extend(
                services.iter().map(|service| Entry::configured(right, Some(service.clone()))),
            ),
        }
    }
    for (name, offered) in &node.services {
        let middleboxes = &offered.description.middleboxes;
        entries.extend(middleboxes.iter().map(|middlebox| Entry {
            identity: middlebox.identity,
            service: Some(name.clone()),
            from: "middlebox".to_owned(),
            detail: Some(middlebox.allow.clone()),
            until: UnixTime::NEVER,
            uses: None,
            session: None,
        }));
    }
    entries
}

impl Entry {
    fn configured(right: &ListedRight, service: Option<String>) -> Self {
        Self {
            identity: right.identity,
            service,
            from: right.source(),
            detail: Some(right.place()).filter(|_| right.origin != Origin::CommandLine),
            until: right.expires.min(right.member_until),
            uses: None,
            session: None,
        }
    }
}

impl From<AccessRight> for Entry {
    fn from(right: AccessRight) -> Self {
        Self {
            identity: right.identity,
            service: right.service,
            from: right.source.as_str().to_owned(),
            detail: None,
            until: right.expires,
            uses: right.uses,
            session: None,
        }
    }
}

impl From<AccessCapability> for Entry {
    fn from(capability: AccessCapability) -> Self {
        let session = capability.session;
        let is_share = session.service == SWARM;
        Self {
            identity: capability.identity,
            from: if is_share { "ticket" } else { "capability" }.to_owned(),
            service: Some(session.service),
            detail: Some(session.id.to_string()),
            until: session.expires,
            uses: (!is_share).then_some(capability.uses),
            session: Some(session.id),
        }
    }
}

/// The last start of each service by each identity in the list.
async fn last_starts(
    node: &Arc<Node>,
    entries: &[Entry],
) -> Result<HashMap<(Identity, String), UnixTime>, Reply> {
    let services: BTreeSet<String> = node.services.keys().cloned().collect();
    let mut pairs = BTreeSet::new();
    for entry in entries {
        match &entry.service {
            Some(service) => drop(pairs.insert((entry.identity, service.clone()))),
            None => pairs.extend(services.iter().map(|name| (entry.identity, name.clone()))),
        }
    }
    on_store(node, move |store| {
        let mut last = HashMap::new();
        for (identity, service) in pairs {
            if let Some(time) = store.last_start(&identity, &service)? {
                last.insert((identity, service), time);
            }
        }
        Ok::<_, StoreError>(last)
    })
    .await
}

fn row(
    node: &Node,
    entry: &Entry,
    names: &HashMap<Identity, String>,
    runs: &[Run],
    last: &HashMap<(Identity, String), UnixTime>,
) -> Value {
    // A right to every service does not include a shell.
    let covers = |service: &String| match &entry.service {
        Some(name) => name == service,
        None => !node.must_be_named(service),
    };
    let is_of = |run: &&Run| match entry.session {
        Some(session) => run.session == session && run.holder == entry.identity,
        None => run.holder == entry.identity && covers(&run.service),
    };
    let last = last
        .iter()
        .filter(|((identity, service), _)| *identity == entry.identity && covers(service));
    json!({
        "identity": entry.identity.to_string(),
        "name": names.get(&entry.identity),
        "service": entry.service,
        "from": entry.from,
        "detail": entry.detail,
        "until": entry.until.0,
        "uses": entry.uses,
        "last_used": last.map(|(_, time)| time.0).max(),
        "running": runs.iter().filter(is_of).count(),
    })
}

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

/// The places of the configuration that still give `identity` a right to `service`, or any.
fn places(node: &Node, identity: &Identity, service: Option<&str>) -> Vec<String> {
    let lists = node.rights.policy.lists();
    let rights = lists.of(identity).filter(|right| right.may_cover(service));
    let place = |right: &ListedRight| match &right.group {
        Some(group) => format!("{GROUP_PREFIX}{group} ({})", right.place()),
        None => right.place(),
    };
    rights.map(place).collect()
}
