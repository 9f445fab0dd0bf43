//! Explains which rule or right decides about a request.

use std::sync::Arc;
use std::time::Duration;

use levada_client::control::Reply;
use levada_core::{Identity, Params};
use serde_json::{Value, json};

use super::identities;
use super::reply::{check_service, refused};
use crate::decide::{Ruling, Source};
use crate::explain::{Answer, Explained, blocked, explain as render};
use crate::node::Node;
use crate::store::{Permission, RightRequest};
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
    let wanted = Wanted {
        service: &service,
        params: &params,
        expires: expires_secs.map(|secs| now.after(Duration::from_secs(secs))),
        uses,
    };
    let explained = match denied(node, &identity) {
        Some(explained) => explained,
        None => {
            let ruling = chosen(node, &identity, &wanted);
            render(&ruling, wanted.expires, |identity| node.shown_name(identity))
        }
    };
    Ok(json!({
        "identity": identity.to_string(),
        "service": service,
        "answer": explained.answer.as_str(),
        "text": explained.text,
    }))
}

/// The answer to every request if the identity is blocked, or its key was rotated.
fn denied(node: &Node, identity: &Identity) -> Option<Explained> {
    let by_configuration = blocked(&node.rights.policy, identity);
    by_configuration.or_else(|| Some(Explained::new(Answer::No, node.denial_reason(identity)?)))
}

/// The decision of the node. A right of the store is the one that the request would use.
fn chosen(node: &Node, identity: &Identity, wanted: &Wanted<'_>) -> Ruling {
    let mut ruling = node.decide_request(identity, identity, wanted);
    if let Ruling::Permitted(permitted) = &mut ruling
        && let Permission::Right { by_name, starts } = permitted.permission
    {
        let now = node.now();
        let expires = wanted.expires.unwrap_or_else(|| now.after(node.rights.session_expires));
        let service = wanted.service;
        let request = RightRequest { service, by_name, starts, expires: Some(expires) };
        let chosen = node.rights.store.chosen_right(identity, &request, now);
        if let Some(right) = chosen {
            permitted.source = Source::Store(right);
        }
    }
    ruling
}
