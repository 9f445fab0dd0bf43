//! The neighbours that the coordinator has named, and connections that may be theirs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::Identity;
use levada_session::Connection;
use tokio::sync::mpsc::Sender;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::PeerId;
use crate::driver::events::Event;
use crate::driver::link::Link;
use crate::driver::meeting::{self, Network};
use crate::driver::pairing::Pairing;

/// The most incoming connections whose streams are not open yet, and the most that the coordinator
/// has not announced yet.
const MOST_WAITING: usize = 64;
/// The time for which a connection waits for the coordinator to announce its peer.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait for the connection of a peer, before this side connects to it: the delay between two
/// attempts in RFC 8305, section 5.
const SECOND_ATTEMPT: Duration = Duration::from_millis(250);

/// Connections to neighbours until they are links, and all that is known of the neighbours.
pub(super) struct Neighbours {
    pub(super) network: Network,
    /// Incoming connections without streams.
    pub(super) accepting: JoinSet<()>,
    /// Attempts to connect.
    pub(super) dials: JoinSet<()>,
    /// Incoming streams whose other one comes on a further connection.
    pairing: Arc<Pairing>,
    events: Sender<Event>,
    /// Neighbours that the coordinator has named.
    named: HashMap<PeerId, Named>,
    /// Incoming links of peers that the coordinator has not named yet, or to which this one has
    /// connected, too.
    waiting: Vec<(Identity, Link, Instant)>,
}

/// A neighbour that the coordinator has named.
struct Named {
    identity: Identity,
    /// This side connects to it first.
    dials_first: bool,
    /// The attempt to connect to it.
    attempt: Option<AbortHandle>,
}

impl Drop for Named {
    fn drop(&mut self) {
        self.attempt.iter().for_each(AbortHandle::abort);
    }
}

impl Neighbours {
    /// Links are reported to `events`.
    pub(super) fn new(network: Network, events: Sender<Event>) -> Self {
        Self {
            network,
            accepting: JoinSet::new(),
            dials: JoinSet::new(),
            pairing: Arc::new(Pairing::new(MOST_WAITING)),
            events,
            named: HashMap::new(),
            waiting: Vec::new(),
        }
    }

    /// Returns true if a peer was named.
    pub(super) fn contains(&self, peer: PeerId) -> bool {
        self.named.contains_key(&peer)
    }

    /// The identity of a peer that was named.
    pub(super) fn identity(&self, peer: PeerId) -> Option<Identity> {
        self.named.get(&peer).map(|named| named.identity)
    }

    /// The peer that was named with this identity, and whether this side connects to it first.
    pub(super) fn find(&self, identity: Identity) -> Option<(PeerId, bool)> {
        let named = self.named.iter().find(|(_, named)| named.identity == identity);
        named.map(|(peer, named)| (*peer, named.dials_first))
    }

    /// Forgets a peer, and ends the attempt to connect to it.
    pub(super) fn remove(&mut self, peer: PeerId) {
        self.named.remove(&peer);
    }

    /// Ends the attempt to connect to a peer, to which there is a link now.
    pub(super) fn end_attempt(&mut self, peer: PeerId) {
        let attempt = self.named.get_mut(&peer).and_then(|named| named.attempt.take());
        attempt.iter().for_each(AbortHandle::abort);
    }

    /// Keeps a link for a peer that may be named soon, or whose other link may end.
    pub(super) fn keep(&mut self, identity: Identity, link: Link) {
        self.waiting.retain(|(_, _, since)| since.elapsed() < ANNOUNCEMENT_TIMEOUT);
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push((identity, link, Instant::now()));
        }
    }

    /// The link that was kept for a peer.
    pub(super) fn take_kept(&mut self, identity: Identity) -> Option<Link> {
        let at = self.waiting.iter().position(|(waiting, _, _)| *waiting == identity)?;
        Some(self.waiting.swap_remove(at).1)
    }

    /// Returns true if a further connection may be accepted.
    pub(super) fn has_room(&self) -> bool {
        self.accepting.len() < MOST_WAITING
    }

    pub(super) fn accept(&mut self, connection: Connection) {
        let pairing = self.pairing.clone();
        let events = self.events.clone();
        self.accepting.spawn(meeting::accept(connection, pairing, events));
    }

    /// Connects to a peer that the coordinator has named.
    pub(super) fn connect(&mut self, peer: PeerId, identity: Identity, addresses: Vec<String>) {
        let dials = self.network.dials();
        let events = self.events.clone();
        let attempt = self.dials.spawn(async move {
            let event = match meeting::dial(dials, identity, addresses).await {
                Some(link) => Event::Linked(peer, link),
                None => Event::Unlinked(peer, 0),
            };
            let _ = events.send(event).await;
        });
        self.named.insert(peer, Named { identity, dials_first: true, attempt: Some(attempt) });
    }

    /// Waits for a connection of a peer, which may be unable to reach this one; then it is
    /// connected from here.
    pub(super) fn allow(&mut self, peer: PeerId, identity: Identity, addresses: Vec<String>) {
        let dials = self.network.dials();
        let events = self.events.clone();
        let attempt = (!addresses.is_empty()).then(|| {
            self.dials.spawn(async move {
                sleep(SECOND_ATTEMPT).await;
                if let Some(link) = meeting::dial(dials, identity, addresses).await {
                    let _ = events.send(Event::Linked(peer, link)).await;
                }
            })
        });
        self.named.insert(peer, Named { identity, dials_first: false, attempt });
    }
}
