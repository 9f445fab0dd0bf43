//! Connections between the peers of a running simulation.

use std::time::Duration;

use super::Simulator;
use super::event::Event;
use crate::{PeerId, peer};

/// The time until a peer gives up connecting to one that does not answer.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which a peer waits for the connection of another before it connects by itself.
const SECOND_ATTEMPT: Duration = Duration::from_millis(250);

impl Simulator<'_> {
    /// A peer connects to another one.
    pub(super) fn connect(&mut self, at: PeerId, peer: PeerId) {
        if self.reaches(at, peer) {
            let link = Event::Link { dialer: at, other: peer, is_first: true };
            self.after(self.scenario.delay * 2, link);
        } else {
            self.after(DIAL_TIMEOUT, Event::Unlink { at, other: peer });
        }
    }

    /// A peer waits for the connection of another one, and then connects by itself.
    pub(super) fn allow(&mut self, at: PeerId, peer: PeerId) {
        if self.reaches(at, peer) {
            let link = Event::Link { dialer: at, other: peer, is_first: false };
            self.after(SECOND_ATTEMPT + self.scenario.delay * 2, link);
        }
    }

    /// A peer has connected to another one, or would have, if both are still there.
    pub(super) fn link(&mut self, dialer: PeerId, other: PeerId, is_first: bool) {
        if !is_first && self.network.is_linked(dialer, other) {
            return;
        }
        if self.nodes.is_running(dialer)
            && self.nodes.is_running(other)
            && self.can_connect(dialer, other)
            && self.network.link(dialer, other)
        {
            self.input(other, peer::Input::Linked(dialer));
            self.input(dialer, peer::Input::Linked(other));
        } else if is_first {
            self.after(self.scenario.delay, Event::Unlink { at: dialer, other });
        }
    }

    /// A peer ends its connection to another one, which notices that.
    pub(super) fn disconnect(&mut self, at: PeerId, peer: PeerId) {
        self.forget_break(at, peer);
        if self.network.unlink(at, peer) {
            self.after(self.scenario.delay, Event::Unlink { at: peer, other: at });
        }
    }

    /// Returns true if a peer can connect to another one now.
    fn reaches(&self, from: PeerId, to: PeerId) -> bool {
        let number = self.nodes.number(to);
        let is_reachable = number.is_some_and(|number| self.scenario.peers[number].reachable);
        is_reachable && self.can_connect(from, to)
    }
}
