//! Explains which rule or right decides about a request.

use std::sync::Arc;
use std::time::Duration;

use levada_client::control::Reply;
use levada_config::Asked;
use levada_core::{Identity, Params, UnixTime};
use serde_json::{Value, json};

use super::identities;
use super::reply::{check_service, on_store, refused};
use crate::explain::{Answer, Explained, explain as by_configuration};
use crate::node::Node;
use crate::store::AccessRight;
use crate::wanted::Wanted;

/// A service, its parameters, the seconds until the session expires, and its starts.
type Words = (String, Vec<(String, Vec<u8>)>, Option<u64>, u32);

/// Explains what decides about a request.
pub(super) async fn explain(
    node: &Arc<Node>,
    text: String,
    (service, pairs, expires_secs, uses): Words,
) -> Result<Value, Reply> {
    let identity = identities::resolve(node, text).await?;
    check_service(node, &service)?;
    let mut params = Params::new();
    for (key, value) in pairs {
        params.add(&key, value).map_err(|error| refused(2, &error))?;
    }
    let now = node.now();
    let own = node.identity();
    let wanted = Wanted {
        service: &service,
        params: &params,
        expires: expires_secs.map(|secs| now.after(Duration::from_secs(secs))),
        uses,
    };
    let asked = wanted.asked_by(&identity, &own, node.must_be_named(&service));
    let explained = match node.rights.store.denial_reason([&identity]) {
        Some(_) => denied(node, &identity),
        None => match configured(node, &asked, now) {
            Some(explained) => explained,
            None => stored(node, &asked, now).await?.unwrap_or_else(Explained::nothing),
        },
    };
    Ok(json!({
        "identity": identity.to_string(),
        "service": service,
        "answer": explained.answer.as_str(),
        "text": explained.text,
    }))
}

fn denied(node: &Node, identity: &Identity) -> Explained {
    let text = node.denial_reason(identity).unwrap_or("this identity is denied everything");
    Explained::new(Answer::No, text)
}

fn configured(node: &Node, asked: &Asked<'_>, now: UnixTime) -> Option<Explained> {
    by_configuration(&node.rights.policy, asked, now, |identity| node.shown_name(identity))
}

/// The right of the store that a request would use.
async fn stored(
    node: &Arc<Node>,
    asked: &Asked<'_>,
    now: UnixTime,
) -> Result<Option<Explained>, Reply> {
    let rights = on_store(node, |store| store.access_rights()).await?;
    let covers = |right: &&AccessRight| match &right.service {
        Some(service) => service == asked.service,
        None => !asked.by_name,
    };
    let permits = |right: &&AccessRight| {
        right.is_valid(now)
            && right.uses.is_none_or(|uses| uses >= asked.uses)
            && asked.expires.is_none_or(|expires| expires <= right.expires)
    };
    let of_identity = rights.iter().filter(|right| right.identity == *asked.identity);
    let found = of_identity.filter(covers).find(permits);
    Ok(found.map(|right| {
        let uses = right.uses.map(|uses| format!(", with {uses} uses left")).unwrap_or_default();
        let source = right.source.as_str();
        Explained::new(Answer::Yes, format!("a right of origin `{source}` gives it{uses}"))
    }))
}
