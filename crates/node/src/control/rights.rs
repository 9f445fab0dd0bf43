//! Lists the rights of identities, for the owner of the node.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use levada_capability::{SWARM, SessionId};
use levada_client::control::Reply;
use levada_config::{Effect, GROUP_PREFIX, Prospect, RuleRight};
use levada_core::{Identity, UnixTime};
use levada_services::brokering::ServicePattern;
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
/// The origin of what a middlebox of a service may do.
const MIDDLEBOX: &str = "middlebox";

/// One line of the list.
struct Entry {
    identity: Identity,
    /// The service, in which `*` stands for any characters; `None` for every service.
    service: Option<String>,
    /// The pattern of the services, if they have one.
    pattern: Option<ServicePattern>,
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
    // The blocked identities are listed below.
    entries.retain(|one| is_shown(&one.identity) && is_of_group(one));
    entries.retain(|one| node.denial_reason(&one.identity).is_none());
    let last = on_store(node, move |store| store.last_starts(only.as_ref())).await?;
    let names = names(node).await?;
    let mut by_holder: HashMap<Identity, Vec<&Run>> = HashMap::new();
    for run in &runs {
        by_holder.entry(run.holder).or_default().push(run);
    }
    let rows = entries.iter().map(|entry| row(node, entry, &names, &by_holder, &last));
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
    let own = node.identity();
    let by_rule = lists.rules.rights(&own).filter(|right| now < right.until);
    entries.extend(by_rule.filter_map(Entry::by_rule));
    for (name, offered) in &node.services {
        let middleboxes = &offered.description.middleboxes;
        entries.extend(middleboxes.iter().map(|middlebox| Entry {
            identity: middlebox.identity,
            service: Some(name.clone()),
            pattern: None,
            from: MIDDLEBOX.to_owned(),
            detail: Some(middlebox.allow.clone()),
            until: UnixTime::NEVER,
            uses: None,
            session: None,
        }));
    }
    entries
}

/// The effects of the rules for every identity, also of those that deny.
fn for_everyone(node: &Node) -> Vec<Value> {
    let own = node.identity();
    let row = |right: RuleRight<'_>| {
        json!({
            "service": right.services.service(),
            "effect": right.effect.as_str(),
            "place": &**right.place,
        })
    };
    node.rights.policy.lists().rules.for_everyone(&own).map(row).collect()
}

impl Entry {
    fn configured(right: &ListedRight, service: Option<String>) -> Self {
        Self {
            identity: right.identity,
            service,
            pattern: None,
            from: right.source(),
            detail: Some(right.place()).filter(|_| right.origin != Origin::CommandLine),
            until: right.expires.min(right.member_until),
            uses: None,
            session: None,
        }
    }

    /// A right that a rule may give to an identity that it names, or to a member of a group.
    fn by_rule(right: RuleRight<'_>) -> Option<Self> {
        let kind = if right.effect == Effect::Ask { "rule that asks" } else { "rule" };
        let (from, detail) = match right.group {
            Some(group) => (format!("{GROUP_PREFIX}{group}"), format!("{kind}, {}", right.place)),
            None => (kind.to_owned(), right.place.to_string()),
        };
        let service = right.services.service();
        Some(Self {
            identity: right.identity?,
            service: (service != "*").then(|| service.to_owned()),
            pattern: (!right.services.is_exact()).then(|| right.services.clone()),
            from,
            detail: Some(detail),
            until: right.until,
            uses: None,
            session: None,
        })
    }

    /// Returns true if it is about this service of `node`. A right to several services does not
    /// include a shell.
    fn covers(&self, node: &Node, service: &str) -> bool {
        match (&self.pattern, &self.service) {
            (Some(pattern), _) => {
                pattern.matches(&node.identity(), service) && !node.must_be_named(service)
            }
            (None, Some(name)) => name == service,
            (None, None) => !node.must_be_named(service),
        }
    }
}

impl From<AccessRight> for Entry {
    fn from(right: AccessRight) -> Self {
        Self {
            identity: right.identity,
            service: right.service,
            pattern: None,
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
            pattern: None,
            detail: Some(session.id.to_string()),
            until: session.expires,
            uses: (!is_share).then_some(capability.uses),
            session: Some(session.id),
        }
    }
}

/// The rules that deny what an entry gives: services with the places of their rules, and the
/// place of the first one if they are all services of the entry.
fn denials(node: &Node, entry: &Entry) -> (Option<Arc<str>>, BTreeMap<String, Arc<str>>) {
    let own = node.identity();
    let policy = &node.rights.policy;
    let is_share = entry.service.as_deref() == Some(SWARM);
    // Rules are not about shares, middleboxes, and the node itself.
    if is_share || entry.from == MIDDLEBOX || entry.identity == own {
        return (None, BTreeMap::new());
    }
    let services: Vec<&String> = match &entry.service {
        Some(name) if entry.pattern.is_none() => vec![name],
        _ => node.services.keys().filter(|name| entry.covers(node, name)).collect(),
    };
    let now = node.now();
    let denied = services.iter().filter_map(|service| {
        let by_name = node.must_be_named(service);
        match policy.prospect(&entry.identity, &own, (service, by_name), now) {
            Prospect::Denied(place) => Some(((*service).clone(), place)),
            _ => None,
        }
    });
    let denied: BTreeMap<_, _> = denied.collect();
    match denied.values().next() {
        Some(place) if denied.len() == services.len() => (Some(place.clone()), BTreeMap::new()),
        _ => (None, denied),
    }
}

fn row(
    node: &Node,
    entry: &Entry,
    names: &HashMap<Identity, String>,
    runs: &HashMap<Identity, Vec<&Run>>,
    last: &HashMap<Identity, Vec<(String, UnixTime)>>,
) -> Value {
    let is_of = |run: &&&Run| match entry.session {
        Some(session) => run.session == session,
        None => entry.covers(node, &run.service),
    };
    let last = last.get(&entry.identity).into_iter().flatten();
    let last = last.filter(|(service, _)| entry.covers(node, service));
    let runs = runs.get(&entry.identity).into_iter().flatten();
    let (denied_by, denied) = denials(node, entry);
    let denied: BTreeMap<&String, &str> = denied.iter().map(|(name, by)| (name, &**by)).collect();
    json!({
        "identity": entry.identity.to_string(),
        "name": names.get(&entry.identity),
        "service": entry.service,
        "from": entry.from,
        "detail": entry.detail,
        "until": entry.until.0,
        "uses": entry.uses,
        "last_used": last.map(|(_, time)| time.0).max(),
        "running": runs.filter(is_of).count(),
        "denied_by": denied_by.as_deref(),
        "denied_services": denied,
    })
}
