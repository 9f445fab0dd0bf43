//! Asks the node in `[groups] from` for its groups, each minute and on SIGHUP.

use std::sync::Arc;
use std::time::Duration;

use levada_client::ClientError;
use levada_core::{Identity, UnixTime};
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::change::GroupsError;
use crate::access::ReloadError;
use crate::node::Node;
use crate::policy::Configured;
use crate::store::Store;

/// The time between two questions.
const INTERVAL: Duration = Duration::from_secs(60);
/// The time for an answer, with the connection.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
enum FetchError {
    #[error("no answer within {} s", FETCH_TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Groups(#[from] GroupsError),
}

/// Fetches groups until the task is aborted.
pub(crate) async fn follow(node: Arc<Node>) {
    loop {
        let source = source(&node).await;
        if let Some((from, set)) = source {
            let fetched = fetch(&node, from, &set).await;
            let failed = match fetched {
                // Refusals are recorded where they are made.
                Ok(()) | Err(FetchError::Groups(_)) => None,
                Err(error) => Some(error.to_string()),
            };
            let mut state = node.rights.groups.state();
            if failed.is_some() && failed != state.unreachable {
                tracing::warn!(%from, error = failed.as_deref(), "could not fetch groups");
            }
            state.unreachable = failed;
        }
        tokio::select! {
            () = sleep(INTERVAL) => {}
            () = node.rights.groups.refresh.notified() => {}
        }
    }
}

/// The identity that signs the groups, and the name of their set.
async fn source(node: &Arc<Node>) -> Option<(Identity, String)> {
    let of = node.clone();
    node.with_store(move |store| {
        if let Err(error) = of.follow_signer(store) {
            tracing::error!(%error, "could not follow the rotation of the key that signs groups");
        }
        let inputs = of.rights.policy.hold();
        inputs.configured.from.map(|from| (from, inputs.configured.set.clone()))
    })
    .await
}

async fn fetch(node: &Arc<Node>, from: Identity, set: &str) -> Result<(), FetchError> {
    let asked = timeout(FETCH_TIMEOUT, node.client.read_groups(from, set)).await;
    let text = asked.map_err(|_| FetchError::Timeout)??;
    let of = node.clone();
    let take = move |store: &Store| {
        // The connection may have proved a rotation of the key.
        of.follow_signer(store)?;
        of.take_groups(store, &text)
    };
    node.with_store(take).await?;
    Ok(())
}

impl Node {
    /// Follows a rotation of the key that signs the groups, if a connection to its node has proved
    /// one: the pins have followed it, and the lists name the old key. To be called in the blocking
    /// pool.
    fn follow_signer(&self, store: &Store) -> Result<(), GroupsError> {
        let from = self.rights.policy.hold().configured.from;
        let Some(from) = from else { return Ok(()) };
        if self.client.known().successor(&from)?.is_none() {
            return Ok(());
        }
        self.replace_inputs(store, Configured::clone).map(drop).map_err(|error| match error {
            ReloadError::Policy(error) => error.into(),
            ReloadError::Store(error) => error.into(),
        })
    }

    /// The state of the groups of another node, for `status`; null if it takes over none.
    pub(crate) async fn shared_groups(self: &Arc<Self>, now: UnixTime) -> serde_json::Value {
        let Some((from, set)) = source(self).await else { return serde_json::Value::Null };
        let of = self.clone();
        let shared = self.with_store(move |_| of.rights.policy.hold().shared.clone()).await;
        let state = self.rights.groups.state().clone();
        let content = shared.as_ref().map(|shared| &shared.content);
        serde_json::json!({
            "from": from.to_string(),
            "set": set,
            "version": content.map(|content| content.version),
            "groups": content.map(|content| content.groups.keys().collect::<Vec<_>>()),
            "signed": content.map(|content| content.time.0),
            "expires": content.map(|content| content.expires.0),
            "expired": content.map(|content| content.expires <= now),
            "refused": state.refused.map(|refused| {
                serde_json::json!({ "time": refused.time.0, "text": refused.text })
            }),
            "unreachable": state.unreachable,
        })
    }
}
