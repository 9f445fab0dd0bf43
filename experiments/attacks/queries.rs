//! Attack: an unauthorised peer sends queries as fast as they are answered.

use std::sync::Arc;

use levada_core::wire::{Query, operation::Operation};

use super::peer::{SOURCE, connect_as_new_identity, repeat, request, spawn_all};
use super::victim::Target;

/// Connections from the source.
const CONNECTIONS: usize = 30;

/// Attacks until dropped; counts answers.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let one = |_| {
        let target = target.clone();
        async move { repeat(async || flood(&target).await).await }
    };
    spawn_all(CONNECTIONS, one).await;
    Ok(())
}

/// Sends queries on one connection until the node closes it.
async fn flood(target: &Target) -> anyhow::Result<()> {
    let connection = connect_as_new_identity(target, SOURCE).await?;
    loop {
        request(&connection, Operation::Query(Query { service: String::new() })).await?;
        target.count();
    }
}
