//! Names of identities, and identities by their names or the beginning of their text, as the tables
//! of the command line print it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use levada_client::ClientError;
use levada_client::control::Reply;
use levada_core::{Identity, is_abbreviation};
use levada_home::known::{Known, NameError};
use serde_json::{Value, json};

use super::reply::{on_store, refused};
use crate::node::Node;

/// The pinned name of each identity; the oldest if it has several.
pub(super) async fn names(node: &Arc<Node>) -> Result<HashMap<Identity, String>, Reply> {
    let names = node.client.with_known(Known::name_of_each).await;
    names.map_err(|error| refused(120, &error))
}

/// The identities in the databases of this home that begin with `beginning`.
pub(super) async fn find(node: &Arc<Node>, beginning: String) -> Result<Value, Reply> {
    let found = with_beginning(node, beginning).await?;
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    Ok(json!({ "identities": found }))
}

/// Resolves an identity, a name that is pinned here, or the beginning of an identity in the
/// databases of this home.
pub(super) async fn resolve(node: &Arc<Node>, text: String) -> Result<Identity, Reply> {
    let unknown = match node.client.identity_of(&text).await {
        Ok(identity) => return Ok(identity),
        Err(unknown @ ClientError::Usage(_)) => refused(unknown.exit_code(), &unknown),
        Err(error) => return Err(refused(error.exit_code(), &error)),
    };
    let found = with_beginning(node, text.clone()).await?;
    if found.len() > 1 {
        let names = names(node).await?;
        let candidates: Vec<_> = found.iter().map(|one| (*one, names.get(one).cloned())).collect();
        return Err(refused(2, &NameError::ambiguous(&text, &candidates)));
    }
    found.into_iter().next().ok_or(unknown)
}

async fn with_beginning(node: &Arc<Node>, text: String) -> Result<BTreeSet<Identity>, Reply> {
    if !is_abbreviation(&text) {
        return Ok(BTreeSet::new());
    }
    let beginning = text.clone();
    let known = node.client.with_known(move |known| known.identities_with_beginning(&beginning));
    let mut found = known.await.map_err(|error| refused(120, &error))?;
    found.extend(on_store(node, move |store| store.identities_with_prefix(&text)).await?);
    Ok(found)
}
