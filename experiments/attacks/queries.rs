//! One peer without rights sends queries as fast as they are answered.

use std::sync::Arc;

use levada_core::wire::{Query, operation::Operation};

use super::peer::{SOURCE, ask, forever, meet, together};
use super::victim::Target;

/// Connections of the source.
const CONNECTIONS: usize = 30;

/// Attacks until it is dropped; counts answers.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let one = |_| {
        let target = target.clone();
        async move { forever(async || flood(&target).await).await }
    };
    together(CONNECTIONS, one).await;
    Ok(())
}

/// Queries on one connection until the node ends it.
async fn flood(target: &Target) -> anyhow::Result<()> {
    let connection = meet(target, SOURCE).await?;
    loop {
        ask(&connection, Operation::Query(Query { service: String::new() })).await?;
        target.count();
    }
}
