//! Lists, changes, signs and takes over groups, for the owner of the node.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levada_client::control::{GroupRequest, Reply};
use levada_config::{GROUP_PREFIX, Member};
use levada_core::{GroupSet, Identity, UnixTime};
use serde_json::{Value, json};

use super::identities::{names, resolve};
use super::remaining::remaining;
use super::reply::{check_service, refused};
use crate::groups::GroupsError;
use crate::node::Node;
use crate::policy::Lists;
use crate::store::{GroupRight, Store};

/// The maximum number of members of one request.
const MAX_MEMBERS: usize = 1000;

pub(super) async fn handle(node: &Arc<Node>, request: GroupRequest) -> Result<Value, Reply> {
    match request {
        GroupRequest::List => list(node).await,
        GroupRequest::Add { name, members } => add(node, name, members).await,
        GroupRequest::Remove { name, members } => remove(node, name, members).await,
        GroupRequest::Export { names, set, expires_secs } => {
            let lifetime = Duration::from_secs(expires_secs);
            let export =
                move |node: &Node, store: &Store| node.export_groups(store, &set, names, lifetime);
            let export = on_groups(node, export).await?;
            let (content, _) =
                GroupSet::verify(&export.text).map_err(|error| refused(120, &error))?;
            Ok(json!({
                "set": export.name,
                "version": export.version,
                "expires": content.expires.0,
                "text": export.text,
            }))
        }
        GroupRequest::Import { file } => {
            let import = move |node: &Node, store: &Store| node.take_groups(store, &read(&file)?);
            let taken = on_groups(node, import).await?;
            let (version, expires) = match &taken {
                Some(set) => (Some(set.version), Some(set.expires.0)),
                None => (None, None),
            };
            Ok(json!({ "is_new": taken.is_some(), "version": version, "expires": expires }))
        }
    }
}

/// All groups with their origin and members.
async fn list(node: &Arc<Node>) -> Result<Value, Reply> {
    let now = node.now();
    let of = node.clone();
    let (inputs, lists) = node
        .with_store(move |_| {
            let inputs = of.rights.policy.hold().clone();
            (inputs, of.rights.policy.lists())
        })
        .await;
    let names = names(node).await?;
    let row = |name: &str, from: String, members: &[Member]| {
        let members = members.iter().map(|member| described(member, &names));
        json!({
            "group": name,
            "from": from,
            "members": members.collect::<Vec<_>>(),
            "identities": valid(&lists, name, now),
        })
    };
    let configured = inputs.configured.groups.iter();
    let mut rows: Vec<Value> = configured
        .map(|(group, source)| row(&group.name, source.place(), &group.members))
        .collect();
    rows.extend(inputs.groups.iter().map(|group| row(&group.name, "node".into(), &group.members)));
    let own: BTreeSet<String> =
        rows.iter().filter_map(|row| row["group"].as_str().map(str::to_owned)).collect();
    for (name, members) in inputs.shared.iter().flat_map(|shared| &shared.content.groups) {
        let members: Vec<Member> = members.keys().copied().map(Member::Identity).collect();
        let mut row = row(name, "other node".into(), &members);
        row["hidden"] = own.contains(name).into();
        rows.push(row);
    }
    Ok(json!({ "groups": rows }))
}

/// The number of identities to which a group gives its rights now.
fn valid(lists: &Lists, name: &str, now: UnixTime) -> usize {
    let members = lists.groups.members(name).into_iter().flat_map(|members| members.values());
    members.filter(|until| now < **until).count()
}

fn described(member: &Member, names: &HashMap<Identity, String>) -> Value {
    match member {
        Member::Identity(identity) => {
            json!({ "identity": identity.to_string(), "name": names.get(identity) })
        }
        Member::Group(_) => json!({ "group": member.to_string() }),
    }
}

async fn add(node: &Arc<Node>, name: String, members: Vec<String>) -> Result<Value, Reply> {
    let members = resolved(node, members).await?;
    let count = members.len();
    let change = move |node: &Node, store: &Store| node.add_to_group(store, &name, &members);
    on_groups(node, change).await?;
    Ok(json!({ "members": count }))
}

async fn remove(node: &Arc<Node>, name: String, members: Vec<String>) -> Result<Value, Reply> {
    let is_whole = members.is_empty();
    let members = resolved(node, members).await?;
    let before = node.rights.policy.lists();
    let change = move |node: &Node, store: &Store| match is_whole {
        true => node.remove_group(store, &name),
        false => node.remove_from_group(store, &name, &members),
    };
    on_groups(node, change).await?;
    // The sessions that go on, of those that have lost a right.
    let after = node.rights.policy.lists();
    let mut left = Vec::new();
    let own = node.identity();
    let count = |lists: &Lists, identity: &Identity| {
        lists.of(identity).count() + lists.rules.rights_of(*identity, &own).count()
    };
    let has_lost = |identity: &&Identity| count(&before, identity) > count(&after, identity);
    let listed = before.rights.iter().map(|right| right.identity);
    let by_rule = before.rules.rights(&own).filter_map(|right| right.identity);
    let had: BTreeSet<Identity> = listed.chain(by_rule).collect();
    for identity in had.iter().filter(has_lost) {
        left.push(json!({
            "identity": identity.to_string(),
            "remaining": remaining(node, *identity).await?,
        }));
    }
    Ok(json!({ "left": left }))
}

/// The members of a request: `group:NAME`, or anything that denotes an identity.
async fn resolved(node: &Arc<Node>, members: Vec<String>) -> Result<Vec<Member>, Reply> {
    if members.len() > MAX_MEMBERS {
        return Err(refused(2, &format!("at most {MAX_MEMBERS} members at a time")));
    }
    let mut all = Vec::new();
    for text in members {
        all.push(match text.strip_prefix(GROUP_PREFIX) {
            Some(group) => Member::Group(group.to_owned()),
            None => Member::Identity(resolve(node, text).await?),
        });
    }
    Ok(all)
}

/// Reads a file that is not longer than a set of groups.
fn read(file: &Path) -> Result<String, GroupsError> {
    let failed = |error: std::io::Error| {
        GroupsError::Request(format!("cannot read {}: {error}", file.display()))
    };
    let mut text = String::new();
    let limit = GroupSet::MAX_BYTES as u64 + 1;
    File::open(file).map_err(failed)?.take(limit).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Gives the members of a group the right to request `services`, or every service if there are
/// none.
pub(super) async fn allow(
    node: &Arc<Node>,
    group: String,
    services: Vec<String>,
    expires: UnixTime,
) -> Result<Value, Reply> {
    services.iter().try_for_each(|name| check_service(node, name))?;
    let right = |service| GroupRight { group: group.clone(), service, expires };
    let rights: Vec<GroupRight> = match services.is_empty() {
        true => vec![right(None)],
        false => services.iter().cloned().map(Some).map(right).collect(),
    };
    let identity = format!("{GROUP_PREFIX}{group}");
    let allow = move |node: &Node, store: &Store| node.allow_group(store, &group, &rights);
    on_groups(node, allow).await?;
    Ok(json!({ "identity": identity, "services": services, "until": expires.0 }))
}

/// Removes the rights of a group to a service, or to all.
pub(super) async fn disallow(
    node: &Arc<Node>,
    group: String,
    service: Option<String>,
) -> Result<Value, Reply> {
    service.iter().try_for_each(|name| check_service(node, name))?;
    let identity = format!("{GROUP_PREFIX}{group}");
    let covered = service.clone();
    let remove =
        move |node: &Node, store: &Store| node.disallow_group(store, &group, service.as_deref());
    let removed = on_groups(node, remove).await?;
    let lists = node.rights.policy.lists();
    let places: BTreeSet<String> = lists
        .rights
        .iter()
        .filter(|right| right.source() == identity && right.may_cover(covered.as_deref()))
        .map(|right| right.place())
        .collect();
    Ok(json!({
        "identity": identity,
        "rights": removed,
        "still_permitted": null,
        "configured": places,
        "remaining": [],
    }))
}

/// Runs `work` on the store in the blocking pool.
async fn on_groups<T: Send + 'static>(
    node: &Arc<Node>,
    work: impl FnOnce(&Node, &Store) -> Result<T, GroupsError> + Send + 'static,
) -> Result<T, Reply> {
    let of = node.clone();
    let done = node.with_store(move |store| work(&of, store)).await;
    done.map_err(|error| {
        let exit_code = match &error {
            GroupsError::Absent(_) | GroupsError::Refused(_) | GroupsError::Set(_) => 1,
            GroupsError::Request(_) | GroupsError::Policy(_) => 2,
            GroupsError::Store(_) => 120,
        };
        refused(exit_code, &error)
    })
}
