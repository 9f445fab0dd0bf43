//! Links to neighbours, once they are connected.

use levada_core::Identity;

use super::Runner;
use crate::PeerId;
use crate::driver::events::Progress;
use crate::driver::link::Link;
use crate::peer::Input;

impl Runner {
    /// An incoming connection: of a neighbour that was named, or will be.
    pub(super) fn incoming(&mut self, identity: Identity, link: Link) {
        if let Some((peer, dials_first)) = self.neighbours.find(identity) {
            if !self.links.contains(peer) {
                return self.link(peer, link);
            }
            // Both have connected. The other end keeps the connection of the first one, unless it
            // has given that up.
            if dials_first {
                return;
            }
        }
        self.neighbours.keep(identity, link);
    }

    pub(super) fn link(&mut self, peer: PeerId, link: Link) {
        if self.links.contains(peer) {
            return;
        }
        self.neighbours.end_attempt(peer);
        self.links.add(peer, link, None);
        self.handle(Input::Linked(peer));
        self.report(Progress::Neighbours(self.peer.neighbours()));
    }

    /// Continues with the other connection to a neighbour, if both have connected. False if there
    /// is none.
    pub(super) fn relink(&mut self, peer: PeerId) -> bool {
        let identity = self.neighbours.identity(peer);
        let link = identity.and_then(|identity| self.neighbours.take_kept(identity));
        let Some(link) = link else { return false };
        self.links.add(peer, link, None);
        self.handle(Input::Relinked(peer));
        true
    }

    /// Expects a connection of a neighbour, which may be there already.
    pub(super) fn allow(&mut self, peer: PeerId, identity: Identity, addresses: Vec<String>) {
        self.neighbours.allow(peer, identity, addresses);
        if let Some(link) = self.neighbours.take_kept(identity) {
            self.link(peer, link);
        }
    }
}
