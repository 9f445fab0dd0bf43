//! The connections between a peer and the neighbours that the coordinator has named.

use std::time::{Duration, Instant};

use levada_core::Identity;
use levada_session::Connection;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::{MOST_WAITING, Named, Runner};
use crate::PeerId;
use crate::driver::events::{Event, Progress};
use crate::driver::link::Link;
use crate::driver::meeting;
use crate::peer::Input;

/// The time for which a connection waits for the coordinator to announce its peer.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait for the connection of a peer, before this side connects to it: that between two attempts in RFC 8305, section 5.
const SECOND_ATTEMPT: Duration = Duration::from_millis(250);

impl Runner {
    /// An incoming connection: of a neighbour that was named, or will be.
    pub(super) fn incoming(&mut self, identity: Identity, link: Link) {
        let named = self.named.iter().find(|(_, named)| named.identity == identity);
        if let Some((peer, named)) = named.map(|(peer, named)| (*peer, named)) {
            if !self.links.contains(peer) {
                return self.link(peer, link);
            }
            // Both have connected. The other end keeps the connection of the first one, unless it has given that up.
            if named.dials_first {
                return;
            }
        }
        self.waiting.retain(|(_, _, since)| since.elapsed() < ANNOUNCEMENT_TIMEOUT);
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push((identity, link, Instant::now()));
        }
    }

    pub(super) fn link(&mut self, peer: PeerId, link: Link) {
        if self.links.contains(peer) {
            return;
        }
        let attempt = self.named.get_mut(&peer).and_then(|named| named.attempt.take());
        attempt.iter().for_each(AbortHandle::abort);
        self.links.add(peer, link, None);
        self.handle(Input::Linked(peer));
        self.report(Progress::Neighbours(self.peer.neighbours()));
    }

    /// Goes on with the other connection to a neighbour, if both have connected. False if there is none.
    pub(super) fn relink(&mut self, peer: PeerId) -> bool {
        let Some(identity) = self.named.get(&peer).map(|named| named.identity) else {
            return false;
        };
        let Some(link) = self.take_waiting(identity) else { return false };
        self.links.add(peer, link, None);
        self.handle(Input::Relinked(peer));
        true
    }

    fn take_waiting(&mut self, identity: Identity) -> Option<Link> {
        let at = self.waiting.iter().position(|(waiting, _, _)| *waiting == identity)?;
        Some(self.waiting.swap_remove(at).1)
    }

    pub(super) fn accept(&mut self, connection: Connection) {
        let pairing = self.pairing.clone();
        let events = self.events.clone();
        self.tasks.spawn(meeting::accept(connection, pairing, events));
    }

    pub(super) fn connect(&mut self, peer: PeerId, identity: [u8; 32], addresses: Vec<String>) {
        let identity = Identity::from_bytes(identity);
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

    /// Waits for a connection of a peer, which may be unable to reach this one; then it is connected from here.
    pub(super) fn allow(&mut self, peer: PeerId, identity: [u8; 32], addresses: Vec<String>) {
        let identity = Identity::from_bytes(identity);
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
        if let Some(link) = self.take_waiting(identity) {
            self.link(peer, link);
        }
    }
}
