//! The two modes of a share behind one interface, for drivers.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use crate::bitmap::Bitmap;
use crate::coordinator::Input;
use crate::mediated::{self, Counters, Settings};
use crate::{Geometry, Output, PeerId, coordinator, peer};

/// Who passes chunks on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Peers, to each other.
    #[default]
    Direct,
    /// The coordinator, from peer to peer.
    Mediated(Settings),
}

/// The coordinator of a share in either mode.
pub enum Coordinator {
    /// See [`coordinator::Coordinator`].
    Direct(Box<coordinator::Coordinator>),
    /// See [`mediated::Coordinator`].
    Mediated(Box<mediated::Coordinator>),
}

impl Coordinator {
    /// The coordinator of a content that the source has in full. `seed` is for direct mode.
    pub fn new(mode: Mode, geometry: Geometry, seed: u64) -> Self {
        match mode {
            Mode::Direct => Self::Direct(Box::new(coordinator::Coordinator::new(geometry, seed))),
            Mode::Mediated(settings) => {
                Self::Mediated(Box::new(mediated::Coordinator::new(geometry, settings)))
            }
        }
    }

    /// The number of the next peer that joins.
    pub fn next_id(&self) -> PeerId {
        match self {
            Self::Direct(direct) => direct.next_id(),
            Self::Mediated(mediated) => mediated.next_id(),
        }
    }

    /// The identities of the peers that are there, and how many chunks each has reported.
    pub fn progress(&self) -> Vec<([u8; 32], u64)> {
        match self {
            Self::Direct(direct) => {
                direct.members().map(|(_, one)| (one.identity, one.chunks)).collect()
            }
            Self::Mediated(mediated) => {
                let members = mediated.members();
                members.map(|(_, one)| (one.identity, u64::from(one.chunks))).collect()
            }
        }
    }

    /// The identities of the peers to which others can connect: none in mediated mode.
    pub fn reachable(&self) -> Vec<[u8; 32]> {
        match self {
            Self::Direct(direct) => {
                let members = direct.members().filter(|(_, one)| one.is_reachable());
                members.map(|(_, one)| one.identity).collect()
            }
            Self::Mediated(_) => Vec::new(),
        }
    }

    /// The identities that were expelled for wrong bytes.
    pub fn expelled(&self) -> &BTreeSet<[u8; 32]> {
        match self {
            Self::Direct(direct) => direct.expelled(),
            Self::Mediated(mediated) => mediated.expelled(),
        }
    }

    /// The chunks that could not be read from the source.
    pub fn unreadable(&self) -> &Bitmap {
        match self {
            Self::Direct(direct) => direct.unreadable(),
            Self::Mediated(mediated) => mediated.unreadable(),
        }
    }

    /// What was read, fetched and sent; only in mediated mode.
    pub fn counters(&self) -> Counters {
        match self {
            Self::Direct(_) => Counters::default(),
            Self::Mediated(mediated) => mediated.counters(),
        }
    }

    /// Handles what happened at `now`.
    pub fn handle(&mut self, now: Duration, input: Input) {
        match self {
            Self::Direct(direct) => direct.handle(now, input),
            Self::Mediated(mediated) => mediated.handle(now, input),
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        match self {
            Self::Direct(direct) => direct.next_timeout(),
            Self::Mediated(mediated) => mediated.next_timeout(),
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        match self {
            Self::Direct(direct) => direct.handle_timeout(now),
            Self::Mediated(mediated) => mediated.handle_timeout(now),
        }
    }

    /// What the driver does next.
    pub fn poll(&mut self) -> Option<Output> {
        match self {
            Self::Direct(direct) => direct.poll(),
            Self::Mediated(mediated) => mediated.poll(),
        }
    }
}

/// A peer in either mode.
pub enum Peer {
    /// See [`peer::Peer`].
    Direct(Box<peer::Peer>),
    /// See [`mediated::Peer`].
    Mediated(Box<mediated::Peer>),
}

impl Peer {
    /// A peer that has the chunks `have` of a content. In direct mode it listens at `addresses`,
    /// and its random choices follow from `seed`.
    pub fn new(
        mode: Mode,
        geometry: Geometry,
        have: Bitmap,
        addresses: Vec<String>,
        seed: u64,
    ) -> Self {
        match mode {
            Mode::Direct => {
                Self::Direct(Box::new(peer::Peer::new(geometry, have, addresses, seed)))
            }
            Mode::Mediated(_) => Self::Mediated(Box::new(mediated::Peer::new(geometry, have))),
        }
    }

    /// See [`mediated::Peer::request_at_random`].
    pub(crate) fn request_at_random(&mut self, seed: u64) {
        if let Self::Mediated(mediated) = self {
            mediated.request_at_random(seed);
        }
    }

    /// Offers no chunk to others, in direct mode. In mediated mode, peers send what the coordinator
    /// asks for.
    pub fn receive_only(&mut self) {
        if let Self::Direct(direct) = self {
            direct.receive_only();
        }
    }

    /// The chunks that are there.
    pub fn have(&self) -> &Bitmap {
        match self {
            Self::Direct(direct) => direct.have(),
            Self::Mediated(mediated) => mediated.have(),
        }
    }

    /// Whether all chunks are there.
    pub fn is_complete(&self) -> bool {
        self.have().is_full()
    }

    /// The chunks that are missing, if all of them are lost; None while another party may have one.
    pub fn lost(&self) -> Option<Vec<Range<u32>>> {
        match self {
            Self::Direct(direct) => direct.lost(),
            Self::Mediated(mediated) => mediated.lost(),
        }
    }

    /// The number of neighbours with a connection, without the coordinator.
    pub fn neighbours(&self) -> usize {
        match self {
            Self::Direct(direct) => direct.neighbours().count(),
            Self::Mediated(_) => 0,
        }
    }

    /// Handles what happened at `now`.
    pub fn handle(&mut self, now: Duration, input: peer::Input) {
        match self {
            Self::Direct(direct) => direct.handle(now, input),
            Self::Mediated(mediated) => mediated.handle(input),
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        match self {
            Self::Direct(direct) => direct.next_timeout(),
            Self::Mediated(_) => None,
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        if let Self::Direct(direct) = self {
            direct.handle_timeout(now);
        }
    }

    /// What the driver does next.
    pub fn poll(&mut self) -> Option<Output> {
        match self {
            Self::Direct(direct) => direct.poll(),
            Self::Mediated(mediated) => mediated.poll(),
        }
    }
}
