//! The peers of a share in mediated mode, and the sets that they belong to.

use std::collections::{BTreeMap, BTreeSet};

use super::member::Member;
use crate::PeerId;

/// All peers with a connection.
pub(super) struct Members {
    all: BTreeMap<PeerId, Member>,
    /// Peers that have reported what they have, in the order of their reports.
    pub(super) present: Vec<PeerId>,
    /// Peers that have all chunks.
    pub(super) complete: BTreeSet<PeerId>,
    /// Peers that wait for a chunk.
    pub(super) waiting: BTreeSet<PeerId>,
    /// Waiting peers for which more is obtained.
    pub(super) hungry: BTreeSet<PeerId>,
    /// Waiting peers that can be sent nothing.
    pub(super) starving: BTreeSet<PeerId>,
    next: u32,
    expelled: BTreeSet<[u8; 32]>,
}

impl Members {
    pub(super) fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            present: Vec::new(),
            complete: BTreeSet::new(),
            waiting: BTreeSet::new(),
            hungry: BTreeSet::new(),
            starving: BTreeSet::new(),
            next: 1,
            expelled: BTreeSet::new(),
        }
    }

    pub(super) fn next_id(&self) -> PeerId {
        PeerId(self.next)
    }

    /// Adds a peer, whose number is [`Self::next_id`]. False if it must be disconnected.
    pub(super) fn join(&mut self, identity: [u8; 32]) -> bool {
        let peer = self.next_id();
        // The upper half of the numbers is reserved for the table of owners.
        self.next = (self.next + 1).min(1 << 31);
        if self.expelled.contains(&identity) || peer.0 >= 1 << 31 {
            return false;
        }
        self.all.insert(peer, Member { identity, ..Member::default() });
        true
    }

    /// Removes a peer from all sets.
    pub(super) fn remove(&mut self, peer: PeerId) -> Option<Member> {
        let gone = self.all.remove(&peer)?;
        self.present.retain(|other| *other != peer);
        for set in [&mut self.complete, &mut self.waiting, &mut self.hungry, &mut self.starving] {
            set.remove(&peer);
        }
        Some(gone)
    }

    /// Refuses the identity of a peer from now on. False if the peer is gone.
    pub(super) fn expel(&mut self, peer: PeerId) -> bool {
        let identity = self.all.get(&peer).map(|member| member.identity);
        self.expelled.extend(identity);
        identity.is_some()
    }

    pub(super) fn expelled(&self) -> &BTreeSet<[u8; 32]> {
        &self.expelled
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, &Member)> {
        self.all.iter().map(|(peer, member)| (*peer, member))
    }

    pub(super) fn get(&self, peer: PeerId) -> Option<&Member> {
        self.all.get(&peer)
    }

    /// A peer, to change what its sets do not depend on; otherwise, [`Self::update`] must follow.
    pub(super) fn get_mut(&mut self, peer: PeerId) -> Option<&mut Member> {
        self.all.get_mut(&peer)
    }

    /// Changes what a peer waits for, and the sets that it belongs to.
    pub(super) fn change(&mut self, peer: PeerId, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.all.get_mut(&peer) {
            change(member);
            self.update(peer);
        }
    }

    /// Records which sets a peer belongs to. Called after each change of what it waits for.
    pub(super) fn update(&mut self, peer: PeerId) {
        let Some(member) = self.all.get(&peer) else { return };
        let sets = [
            (&mut self.waiting, !member.wanted.is_empty()),
            (&mut self.hungry, member.is_hungry()),
            (&mut self.starving, member.is_starving()),
        ];
        for (set, belongs) in sets {
            if belongs {
                set.insert(peer);
            } else {
                set.remove(&peer);
            }
        }
    }
}
