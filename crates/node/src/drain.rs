//! Draining: the node takes no further requests and starts, lets the running sessions end, and then
//! stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::middlebox::NodeMiddlebox;
use crate::node::{Ending, Node};

/// The maximum time for which a node drains.
const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The interval of checks whether sessions run.
const STEP: Duration = Duration::from_millis(50);

impl Node {
    /// Begins to drain: the node stops when no session runs, at the latest after `time`, or a week.
    /// A further call replaces the time. Returns the time.
    pub(crate) fn drain(&self, time: Duration) -> Duration {
        let time = time.min(MAX_TIME);
        self.life.draining.send_replace(Some(Instant::now() + time));
        tracing::info!(seconds = time.as_secs(), "the node is draining");
        time
    }

    /// The time after which a draining node stops; `None` if it does not drain.
    pub(crate) fn drains_for(&self) -> Option<Duration> {
        let until = *self.life.draining.borrow();
        until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Waits until the node drains or stops.
    pub(crate) async fn ceasing(&self) {
        let mut draining = self.life.draining.subscribe();
        tokio::select! {
            // This cannot fail: `self` has the sender.
            _ = draining.wait_for(Option::is_some) => {}
            () = self.stopping() => {}
        }
    }

    /// The running sessions of this node, and the sessions of others that it carries as a middlebox.
    pub(crate) fn all_running(&self) -> usize {
        let carried = self.network.middlebox.as_ref().map_or(0, NodeMiddlebox::sessions);
        self.peers.sessions.count() + carried
    }
}

/// Stops the node when it has drained.
pub(crate) async fn serve(node: Arc<Node>) {
    let mut draining = node.life.draining.subscribe();
    loop {
        let until = *draining.borrow_and_update();
        let over = async {
            match until {
                Some(until) => {
                    tokio::select! {
                        () = sleep_until(until) => {}
                        () = idle(&node) => {}
                    }
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => return node.end(Ending::Stop),
            changed = draining.changed() => if changed.is_err() { return },
        }
    }
}

/// Waits until no session runs. A start registers its run before it looks whether the node drains,
/// so none is missed.
async fn idle(node: &Node) {
    while node.all_running() > 0 {
        sleep(STEP).await;
    }
}
