//! Lists what an identity can still use after its permission to request sessions was withdrawn.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use levada_client::control::Reply;
use levada_core::Identity;
use serde_json::{Value, json};

use super::identities::names;
use super::reply::on_store;
use crate::live::Run;
use crate::node::Node;
use crate::store::Remaining;

/// The maximum number of sessions that are listed.
const MAX_SESSIONS: u32 = 1000;

/// The sessions that run or can be started, and that `identity` requested, holds, uses, or has
/// passed on. Each row has the id that `levada revoke` takes to end that use.
pub(super) async fn remaining(node: &Arc<Node>, identity: Identity) -> Result<Vec<Value>, Reply> {
    let runs = node.peers.sessions.runs_with(&identity);
    let now = node.now();
    let running: BTreeSet<_> = runs.iter().map(|run| run.session).collect();
    let found =
        on_store(node, move |store| store.remaining(&identity, &running, now, MAX_SESSIONS));
    let found = found.await?;
    let names = names(node).await?;
    Ok(found.iter().flat_map(|one| rows(one, &runs, &identity, &names)).collect())
}

fn rows(
    remaining: &Remaining,
    runs: &[Run],
    identity: &Identity,
    names: &HashMap<Identity, String>,
) -> Vec<Value> {
    let session = &remaining.session;
    let can_start = remaining.can_start;
    let row = |(id, running): (String, usize)| {
        json!({
            "id": id,
            "session": session.id.to_string(),
            "service": session.service,
            "running": running,
            "can_start": can_start,
            "requester": session.requester.to_string(),
            "requester_name": names.get(&session.requester),
            "holder": session.holder.to_string(),
            "holder_name": names.get(&session.holder),
        })
    };
    uses(remaining, runs, identity).into_iter().map(row).collect()
}

/// The number of runs by the id whose revocation ends them: that of the session, if `identity`
/// requested it or holds its first link. Otherwise that of the link that was used, because the
/// session belongs to others.
fn uses(remaining: &Remaining, runs: &[Run], identity: &Identity) -> BTreeMap<String, usize> {
    let session = &remaining.session;
    let runs = runs.iter().filter(|run| run.session == session.id);
    if [session.requester, session.holder].contains(identity) {
        return BTreeMap::from([(session.id.to_string(), runs.count())]);
    }
    let mut uses = BTreeMap::new();
    for link in runs.filter_map(|run| run.links.last()) {
        *uses.entry(link.to_string()).or_default() += 1;
    }
    if let Some(link) = remaining.link.filter(|_| remaining.can_start) {
        uses.entry(link.to_string()).or_default();
    }
    uses
}
