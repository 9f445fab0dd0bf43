//! Accepting chunks from neighbours.

use std::time::Duration;

use super::arrivals::Expected;
use super::{Exchange, FROM_ONE, slots};
use crate::PeerId;
use crate::message::{Message, runs_of};

impl Exchange {
    pub(super) fn offered(&mut self, from: PeerId, index: u32, now: Duration) {
        let Some(neighbour) = self.neighbours.get_mut(&from) else { return };
        let known = index >= self.have.length()
            || self.have.contains(index)
            || self.arrivals.contains(index);
        if known || neighbour.expected >= neighbour.trust {
            neighbour.postponed |= !known;
            return self.send(from, Message::Decline(index));
        }
        neighbour.expected += 1;
        let until = self.arrivals.expect(index, from, now);
        self.due_at(until);
        let levels = self.have.missing_levels(index, self.geometry.levels());
        self.send(from, Message::Accept(index, levels));
        self.learn(from, index);
        // Others need not offer it.
        self.news.add(index, now);
    }

    /// A chunk has arrived, was verified and stored.
    pub(crate) fn received(&mut self, from: PeerId, index: u32, now: Duration) {
        let took = self.take_expected(index).map(|expected| now.saturating_sub(expected.since));
        took.into_iter().for_each(|took| self.arrivals.measure(took));
        if let Some(neighbour) = self.neighbours.get_mut(&from) {
            neighbour.trust = (neighbour.trust + 1).min(slots::MOST as u32);
        }
        if !self.have.insert(index) {
            return;
        }
        if took.is_none() {
            self.news.add(index, now);
        }
        let at_source = u16::from(self.neighbours.contains_key(&PeerId::COORDINATOR));
        if from == PeerId::COORDINATOR || self.copies(index) <= at_source {
            self.fresh.push(index);
        }
        self.fill(now);
    }

    /// A chunk did not come as it should: it is wanted from any neighbour.
    pub(crate) fn failed(&mut self, index: u32) {
        self.take_expected(index);
        self.want(&[index]);
    }

    /// As [`Self::failed`], if the chunk is expected from this party.
    pub(crate) fn failed_from(&mut self, from: PeerId, index: u32) {
        if self.arrivals.is_from(index, from) {
            self.failed(index);
        }
    }

    fn take_expected(&mut self, index: u32) -> Option<Expected> {
        let expected = self.arrivals.remove(index)?;
        let from = expected.from;
        let Some(neighbour) = self.neighbours.get_mut(&from) else { return Some(expected) };
        neighbour.expected = neighbour.expected.saturating_sub(1);
        if neighbour.expected < neighbour.trust / 2 && std::mem::take(&mut neighbour.postponed) {
            let missing = self.have.gaps().flatten();
            let missing: Vec<u32> =
                missing.filter(|index| !self.arrivals.contains(*index)).collect();
            self.send_runs(from, &runs_of(&missing), Message::Want);
        }
        Some(expected)
    }

    /// Tells all neighbours that these chunks are missing. They had them taken for present.
    pub(super) fn want(&mut self, indices: &[u32]) {
        let missing: Vec<u32> =
            indices.iter().copied().filter(|index| !self.have.contains(*index)).collect();
        if missing.is_empty() {
            return;
        }
        let runs = runs_of(&missing);
        let all: Vec<PeerId> = self.neighbours().collect();
        all.into_iter().for_each(|peer| self.send_runs(peer, &runs, Message::Want));
    }

    /// When [`Exchange::handle_timeout`] is due.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        [self.deadline, self.news.due(), self.copy_at()].into_iter().flatten().min()
    }

    /// Gives up chunks that have not come, and tells the news.
    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        let late = self.arrivals.late(now);
        for index in &late {
            let from = self.take_expected(*index).map(|expected| expected.from);
            if let Some(neighbour) = from.and_then(|from| self.neighbours.get_mut(&from)) {
                neighbour.trust = FROM_ONE;
            }
        }
        self.want(&late);
        if let Some(mut indices) = self.news.take(now) {
            // Some were expected, and have not come.
            indices.retain(|index| self.have.contains(*index) || self.arrivals.contains(*index));
            indices.sort_unstable();
            // One may have failed, and be expected again.
            indices.dedup();
            let runs = runs_of(&indices);
            let others = self
                .neighbours
                .iter()
                .filter(|(peer, one)| **peer == PeerId::COORDINATOR || !one.have.is_full());
            let others: Vec<PeerId> = others.map(|(peer, _)| *peer).collect();
            others.into_iter().for_each(|peer| self.send_runs(peer, &runs, Message::Have));
        }
        self.withdraw(now);
        self.fill(now);
        self.deadline = self.arrivals.late_at().into_iter().chain(self.withdraw_at()).min();
    }
}
