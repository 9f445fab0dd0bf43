//! What a source has given out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::copies::Copies;
use crate::PeerId;
use crate::bitmap::Bitmap;

/// How long the source waits before it gives out the first second copy, unless a peer has passed on
/// a chunk before.
const COPY_DELAY: Duration = Duration::from_millis(100);

/// What a source has given out.
pub(crate) struct Given {
    /// The next chunk that was never given.
    pub(super) next: u32,
    /// Chunks whose only copy is lost.
    pub(super) again: BTreeSet<u32>,
    /// The peer that was given a chunk, until another peer reports it.
    pub(super) first: BTreeMap<u32, PeerId>,
    /// The number of these for each peer.
    pub(super) windows: BTreeMap<PeerId, u32>,
    /// Since when all windows are full.
    pub(super) waiting_since: Option<Duration>,
    /// The least that it waits before it gives out a second copy.
    pub(super) copy_delay: Duration,
}

impl Given {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            again: BTreeSet::new(),
            first: BTreeMap::new(),
            windows: BTreeMap::new(),
            waiting_since: None,
            copy_delay: COPY_DELAY,
        }
    }

    /// `peer` has reported chunk `index`.
    pub(super) fn reported(&mut self, peer: PeerId, index: u32) {
        if self.first.get(&index).is_some_and(|first| *first != peer) {
            // Peers pass on what they can.
            self.copy_delay = Duration::ZERO;
            self.release(index);
        }
    }

    /// A peer wants a chunk that it had declined or that did not come, and `copies` others have it.
    pub(super) fn wanted(&mut self, index: u32, copies: u16) {
        if copies == 0 && index < self.next && !self.first.contains_key(&index) {
            self.again.insert(index);
        }
    }

    /// A chunk was not taken by `peer`.
    pub(super) fn take_back(&mut self, peer: PeerId, index: u32) {
        if self.first.get(&index) == Some(&peer) {
            self.release(index);
            self.again.insert(index);
        }
    }

    /// `peer` takes a chunk that was taken back, and `copies` others have it.
    pub(super) fn accepted_late(&mut self, peer: PeerId, index: u32, copies: u16) {
        if copies == 0 && !self.first.contains_key(&index) {
            self.give(peer, index);
        }
    }

    /// `peer` is given a chunk that no other has.
    pub(super) fn give(&mut self, peer: PeerId, index: u32) {
        self.first.insert(index, peer);
        *self.windows.entry(peer).or_default() += 1;
    }

    pub(super) fn release(&mut self, index: u32) {
        let window = self.first.remove(&index).and_then(|first| self.windows.get_mut(&first));
        if let Some(window) = window {
            *window -= 1;
        }
    }

    /// A peer is gone: what only it had, or was to have, is given again.
    pub(super) fn forget(&mut self, peer: PeerId, had: &Bitmap, copies: &Copies) {
        self.windows.remove(&peer);
        let promised = self.first.iter().filter(|(_, first)| **first == peer);
        let promised: Vec<u32> = promised.map(|(index, _)| *index).collect();
        for index in &promised {
            self.first.remove(index);
        }
        let promised = promised.into_iter().filter(|index| !had.contains(*index));
        let all = had.runs().flatten().chain(promised);
        // Others may be promised to another peer, or not given yet.
        let lost = all.filter(|index| {
            let is_given = *index < self.next && !self.first.contains_key(index);
            copies.present(*index) == 0 && is_given
        });
        self.again.extend(lost.collect::<Vec<_>>());
    }

    /// The time for which the source waits for peers to pass chunks on: as long as a chunk takes to
    /// leave. A second copy that turns out to be needless then costs no more time than the wait.
    pub(super) fn copy_delay(&self, per_chunk: Duration) -> Duration {
        self.copy_delay.max(per_chunk)
    }

    /// How many more chunks a peer may get, of `most`.
    pub(super) fn room(&self, peer: PeerId, most: u32) -> u32 {
        most.saturating_sub(self.windows.get(&peer).copied().unwrap_or_default())
    }
}
