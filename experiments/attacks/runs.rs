//! Attack: a guest starts as many runs of `echo` as the node allows, and keeps them open.

use std::sync::Arc;
use std::time::Duration;

use levada_client::{Client, RequestSpec, Target as Node};
use levada_core::Params;
use tokio::time::sleep;

use super::victim::Target;

/// More runs than a node's default limit.
const RUNS: usize = 150;
/// The delay before a retry of a refused run.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Attacks until dropped; counts started runs.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let client = Client::new(&target.guest)?;
    let node = Node::typed(target.identity, &target.address.to_string());
    let spec = RequestSpec {
        service: "echo".into(),
        params: Params::default(),
        uses: u32::MAX,
        ..RequestSpec::default()
    };
    let capability = client.request(&node, spec).await?;
    let mut held = Vec::new();
    loop {
        match client.connect(&capability).await {
            Ok(running) if held.len() < RUNS => {
                held.push(running);
                target.count();
            }
            _ => sleep(RETRY_DELAY).await,
        }
    }
}
