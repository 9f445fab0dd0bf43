//! Removes sessions and entries of the audit log that have outlived their retention, while the node
//! runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{interval, sleep};

use crate::node::Node;
use crate::store::{Pruned, StoreError};

/// The interval of removals; the first follows the start.
const INTERVAL: Duration = Duration::from_secs(3600);
/// The sessions and the entries that one transaction removes. Starts and requests wait for it.
const BATCH: u32 = 200;
/// The pages that are returned to the file system at a time, of 4 KiB each.
const PAGES: u32 = 256;
/// The pause between two batches, in which others use the store.
const PAUSE: Duration = Duration::from_millis(20);

/// Removes at the start, then each hour, and when the retention has changed. Does not return.
pub(crate) async fn serve(node: Arc<Node>) {
    let mut ticks = interval(INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = node.rights.retention.notified() => {}
        }
        match prune(&node).await {
            Ok(pruned) if pruned == Pruned::default() => {}
            Ok(Pruned { sessions, audit }) => {
                tracing::info!(sessions, audit, "removed records after their retention");
            }
            Err(error) => tracing::error!(%error, "could not remove records after their retention"),
        }
    }
}

async fn prune(node: &Arc<Node>) -> Result<Pruned, StoreError> {
    let mut all = Pruned::default();
    loop {
        // A session that has expired cannot begin to run: its start is refused.
        let running = node.peers.sessions.all().iter().map(|run| run.session).collect();
        let pruned = node.with_store(move |store| store.prune(&running, BATCH)).await?;
        if pruned == Pruned::default() {
            break;
        }
        all += pruned;
        sleep(PAUSE).await;
    }
    while node.with_store(|store| store.release_pages(PAGES)).await? {
        sleep(PAUSE).await;
    }
    Ok(all)
}
