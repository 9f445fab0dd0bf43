//! Lists the rights of identities, for the owner of the node.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use levada_capability::{SWARM, SessionId};
use levada_client::control::Reply;
use levada_config::{GROUP_PREFIX, RuleRight};
use levada_core::{Identity, UnixTime};
use serde_json::{Value, json};

use super::identities::names;
use super::reply::on_store;
use super::{identities, invitations, share};
use crate::live::Run;
use crate::node::Node;
use crate::policy::{ListedRight, Origin};
use crate::store::{AccessCapability, AccessRight, StoreError};

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
        "rules_for_everyone": for_everyone(node),
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
    let by_rule = lists.rules.rights(&node.identity()).into_iter();
    entries.extend(by_rule.filter(|right| now < right.until).filter_map(Entry::by_rule));
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

/// The rights that rules may give to every identity.
fn for_everyone(node: &Node) -> Vec<Value> {
    let rights = node.rights.policy.rule_rights(&node.identity());
    let everyone = rights.iter().filter(|right| right.identity.is_none());
    let row = |right: &RuleRight| json!({ "service": right.service, "asks": right.asks, "place": &*right.place });
    everyone.map(row).collect()
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

    /// A right that a rule may give to an identity that it names, or to a member of a group.
    fn by_rule(right: RuleRight) -> Option<Self> {
        let kind = if right.asks { "rule that asks" } else { "rule" };
        let (from, detail) = match &right.group {
            Some(group) => (format!("{GROUP_PREFIX}{group}"), format!("{kind}, {}", right.place)),
            None => (kind.to_owned(), right.place.to_string()),
        };
        Some(Self {
            identity: right.identity?,
            service: (right.service != "*").then_some(right.service),
            from,
            detail: Some(detail),
            until: right.until,
            uses: None,
            session: None,
        })
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
