//! Looking around.
//!
//! Every look begins with nothing and asks the network, so what it shows has answered within this very
//! moment: a node that was killed is not shown, although its records have not expired yet.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_core::Identity;
use mdns_sd::{IfKind, Receiver, ServiceDaemon, ServiceEvent};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout};

use crate::neighbour::Collector;
use crate::{DiscoveryError, Neighbour, SERVICE, Seen, Wanted, multicast};

/// How long a look takes. Who is there answers within 120 ms, but keeps silent if he said the same less than a
/// second ago (RFC 6762 section 6); so the question is repeated after a second, and its answer awaited.
pub const LOOK: Duration = Duration::from_millis(1400);
/// How long further addresses of somebody who was found are awaited, at least.
const MORE: Duration = Duration::from_millis(120);
/// When those who are there have answered the first question, as a rule: who speaks unasked, and so before them,
/// may only claim the key.
const ANSWERED: Duration = Duration::from_millis(400);
/// How long to wait before a thread that ended is started again.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks for everybody, for [`LOOK`]. It does not end earlier: that a name has one owner is known only when
/// all have had their say.
///
/// # Errors
/// [`DiscoveryError`] if this machine cannot look.
pub async fn look(wanted: Wanted) -> Result<Seen, DiscoveryError> {
    let mut browser = Browser::start(wanted)?;
    // Never enough, so it is the time that ends it.
    let _ = timeout(LOOK, browser.watch(|_| false)).await;
    Ok(browser.collector.seen())
}

/// Looks for a key, for [`LOOK`] at most. Whoever has it must prove that when he is called, so the first who
/// claims it ends the search; a moment more is given to his other addresses, and to others who claim it. If
/// none of them proves it, [`look`] hears all.
///
/// # Errors
/// [`DiscoveryError`] if this machine cannot look.
pub async fn find(identity: &Identity) -> Result<Option<Neighbour>, DiscoveryError> {
    let wanted = Wanted { keys: BTreeSet::from([*identity]), ..Wanted::default() };
    let begun = Instant::now();
    let mut browser = Browser::start(wanted)?;
    if timeout(LOOK, browser.watch(|seen| seen.has(identity))).await.is_ok() {
        let more = ANSWERED.saturating_sub(begun.elapsed()).max(MORE);
        let _ = timeout(more, browser.watch(|_| false)).await;
    }
    Ok(browser.collector.seen().of(identity))
}

struct Browser {
    asking: Asking,
    collector: Collector,
}

/// The thread that asks, and what it hears. It ends with this.
struct Asking {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
}

impl Browser {
    fn start(wanted: Wanted) -> Result<Self, DiscoveryError> {
        // Without this, a machine that cannot look would look like an empty network.
        multicast::usable()?;
        Ok(Self { asking: Asking::start()?, collector: Collector::new(wanted) })
    }

    /// Takes in what is announced until it is enough.
    async fn watch(&mut self, enough: impl Fn(&Collector) -> bool) {
        while !enough(&self.collector) {
            // In a flood the next announcement is always there already, and time must pass all the same.
            consume_budget().await;
            match self.asking.events.recv_async().await {
                Ok(event) => self.collector.take(&event),
                // Its thread has ended: whatever a neighbour did to it, the others are still there.
                Err(_) => {
                    sleep(PAUSE).await;
                    if let Ok(asking) = Asking::start() {
                        self.asking = asking;
                    }
                }
            }
        }
    }
}

impl Asking {
    fn start() -> Result<Self, DiscoveryError> {
        let daemon = ServiceDaemon::new()?;
        daemon.enable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
        let events = daemon.browse(SERVICE)?;
        Ok(Self { daemon, events })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // A thread that is too busy to hear of it ends when its neighbours give it a moment.
        let _ = self.daemon.shutdown();
    }
}
