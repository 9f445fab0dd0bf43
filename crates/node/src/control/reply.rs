//! The replies of the node.

use std::sync::Arc;

use levada_client::control::Reply;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

use crate::node::Node;
use crate::store::{Store, StoreError};

/// The minimum length of a prefix of an id, in digits.
const MIN_ID: usize = 8;

/// Sends a reply.
pub(super) async fn send(write: &mut OwnedWriteHalf, reply: &Reply) -> std::io::Result<()> {
    let mut bytes = serde_json::to_vec(reply)?;
    bytes.push(b'\n');
    write.write_all(&bytes).await
}

/// Runs `work` on the store; its result, or a refusal with its error.
pub(super) async fn on_store<T: Send + 'static>(
    node: &Arc<Node>,
    work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Reply> {
    node.with_store(work).await.map_err(|error| refused(120, &error))
}

/// Refuses a service that the node does not have.
pub(super) fn check_service(node: &Node, name: &str) -> Result<(), Reply> {
    if node.services.contains_key(name) {
        return Ok(());
    }
    let offered: Vec<_> = node.services.keys().cloned().collect();
    let text = format!("this node offers no service `{name}`, only {}", offered.join(", "));
    Err(refused(1, &text))
}

/// Refuses a prefix of an id that is too short to name one.
pub(super) fn check_prefix(id: &str) -> Result<(), Reply> {
    if id.len() >= MIN_ID {
        return Ok(());
    }
    Err(refused(2, &format!("{id}: give at least {MIN_ID} digits of the id")))
}

/// The reply to a request that failed with `error`.
pub(super) fn refused(exit_code: u8, error: &dyn std::fmt::Display) -> Reply {
    Reply::Error { exit_code, text: error.to_string() }
}
