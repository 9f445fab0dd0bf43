//! Lists and cancels invitations.

use std::sync::Arc;

use levada_capability::Invitation;
use levada_client::control::Reply;
use serde_json::{Value, json};

use super::reply::{check_prefix, on_store, refused};
use crate::node::Node;
use crate::store::InvitationSummary;

/// The invitations that can be redeemed.
pub(super) async fn list(node: &Arc<Node>) -> Result<Value, Reply> {
    Ok(json!({ "invitations": rows(node).await? }))
}

/// A row for each invitation that can be redeemed.
pub(super) async fn rows(node: &Arc<Node>) -> Result<Vec<Value>, Reply> {
    let now = node.now();
    let found = on_store(node, move |store| store.invitations(now)).await?;
    Ok(found.iter().map(row).collect())
}

fn row(invitation: &InvitationSummary) -> Value {
    json!({
        "id": Invitation::id(&invitation.hash),
        "service": invitation.service,
        "name": invitation.name,
        "created": invitation.created.0,
        "expires": invitation.expires.0,
    })
}

/// Makes the invitation void whose id begins with `id`.
pub(super) async fn cancel(node: &Arc<Node>, id: String) -> Result<Value, Reply> {
    check_prefix(&id)?;
    let now = node.now();
    let open = on_store(node, move |store| store.invitations(now)).await?;
    let matches = |one: &&InvitationSummary| Invitation::id(&one.hash).starts_with(&id);
    let found: Vec<&InvitationSummary> = open.iter().filter(matches).collect();
    let [invitation] = found[..] else {
        let text = match found.len() {
            0 => format!("no open invitation has the id {id}: it was used, cancelled or expired"),
            _ => format!("several invitations begin with {id}: give more digits"),
        };
        return Err(refused(if found.is_empty() { 1 } else { 2 }, &text));
    };
    let hash = invitation.hash;
    if !on_store(node, move |store| store.cancel_invitation(&hash, now)).await? {
        return Err(refused(1, &"the invitation was used a moment ago"));
    }
    Ok(row(invitation))
}
