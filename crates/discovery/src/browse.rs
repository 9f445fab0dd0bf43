//! Browsing for nodes.
//!
//! Each query starts a fresh mDNS client, so that its result has only nodes that answered during
//! the query. A long-lived client would also return cached records of nodes that were killed, until
//! the records expire.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_core::Identity;
use mdns_sd::{IfKind, Receiver, ServiceDaemon, ServiceEvent};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout};

use crate::neighbour::Collector;
use crate::{BrowseResult, DiscoveryError, Neighbour, SERVICE, Targets, multicast};

/// The duration of [`browse`]. A responder answers within 120 ms, but not if it sent the same
/// record less than a second before (RFC 6762 section 6); the client therefore repeats the question
/// after one second.
pub const BROWSE_TIME: Duration = Duration::from_millis(1400);
/// How long [`find`] waits for further addresses after the first match, at least.
const SETTLE_TIME: Duration = Duration::from_millis(120);
/// How long [`find`] runs at least: the first question is then usually answered. An announcement
/// that arrives earlier was unsolicited, and may be a false claim of the key.
const FIRST_ANSWERS: Duration = Duration::from_millis(400);
/// The delay before a client whose thread ended is restarted.
const RESTART_DELAY: Duration = Duration::from_millis(50);

/// Collects the announcements of all nodes for [`BROWSE_TIME`]. It does not return earlier, because
/// a second node with the same name is a conflict that must be reported.
///
/// # Errors
/// [`DiscoveryError`] if this machine cannot use multicast DNS.
pub async fn browse(targets: Targets) -> Result<BrowseResult, DiscoveryError> {
    let mut browser = Browser::start(targets)?;
    // The condition is never true, so this runs for the full time.
    let _ = timeout(BROWSE_TIME, browser.collect_until(|_| false)).await;
    Ok(browser.collector.finish())
}

/// Searches for a key, for [`BROWSE_TIME`] at most. The handshake proves possession of the key, so
/// the first announcement of it ends the search, after a short wait for further addresses and other
/// announcements of the same key. If none of these nodes has the key, [`browse`] returns all
/// announcements of it.
///
/// # Errors
/// [`DiscoveryError`] if this machine cannot use multicast DNS.
pub async fn find(identity: &Identity) -> Result<Option<Neighbour>, DiscoveryError> {
    let targets = Targets { keys: BTreeSet::from([*identity]), ..Targets::default() };
    let begun = Instant::now();
    let mut browser = Browser::start(targets)?;
    let has_key = |collector: &Collector| collector.contains(identity);
    if timeout(BROWSE_TIME, browser.collect_until(has_key)).await.is_ok() {
        let rest = FIRST_ANSWERS.saturating_sub(begun.elapsed()).max(SETTLE_TIME);
        let _ = timeout(rest, browser.collect_until(|_| false)).await;
    }
    Ok(browser.collector.finish().merged(identity))
}

struct Browser {
    client: MdnsClient,
    collector: Collector,
}

/// An mDNS client that queries for [`SERVICE`]. Dropping it ends its thread.
struct MdnsClient {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
}

impl Browser {
    fn start(targets: Targets) -> Result<Self, DiscoveryError> {
        // Without this check, a machine without multicast would report an empty network.
        multicast::usable_interfaces()?;
        Ok(Self { client: MdnsClient::start()?, collector: Collector::new(targets) })
    }

    /// Collects announcements until `done`.
    async fn collect_until(&mut self, done: impl Fn(&Collector) -> bool) {
        while !done(&self.collector) {
            // In a flood `recv_async` is always ready; without a yield the timeout would never
            // fire.
            consume_budget().await;
            match self.client.events.recv_async().await {
                Ok(event) => self.collector.handle(&event),
                // The client's thread ended, perhaps because of a malformed packet.
                Err(_) => {
                    sleep(RESTART_DELAY).await;
                    if let Ok(client) = MdnsClient::start() {
                        self.client = client;
                    }
                }
            }
        }
    }
}

impl MdnsClient {
    fn start() -> Result<Self, DiscoveryError> {
        let daemon = ServiceDaemon::new()?;
        daemon.enable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
        let events = daemon.browse(SERVICE)?;
        Ok(Self { daemon, events })
    }
}

impl Drop for MdnsClient {
    fn drop(&mut self) {
        // A flooded thread reads its commands late, and may outlive this.
        let _ = self.daemon.shutdown();
    }
}
