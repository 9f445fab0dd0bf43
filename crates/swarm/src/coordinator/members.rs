//! The peers of a share, and which of them exchange chunks.

use std::collections::{BTreeMap, BTreeSet};

use crate::PeerId;
use crate::message::Message;
use crate::random::Random;

/// Each new peer is introduced to so many others; fewer peers form a full mesh.
const DEGREE: usize = 14;
/// The most neighbours of a peer. On average it has 2 × `DEGREE`. With that as the limit, early
/// peers would be full, and those that come later would know only each other: a chain, in which a
/// chunk travels far.
const MOST: usize = 4 * DEGREE;
/// How often two peers whose connection fails are introduced to each other: every introduction
/// costs four messages.
const ATTEMPTS: u8 = 4;

/// One peer.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its identity, an Ed25519 public key.
    pub identity: [u8; 32],
    /// How many chunks it has reported.
    pub chunks: u64,
    /// None before it has said where it listens.
    addresses: Option<Vec<String>>,
    neighbours: BTreeSet<PeerId>,
}

impl Member {
    /// Whether others can connect to it.
    pub fn is_reachable(&self) -> bool {
        self.addresses.as_ref().is_some_and(|addresses| !addresses.is_empty())
    }
}

/// All peers that are there.
pub(super) struct Members {
    next: u32,
    members: BTreeMap<PeerId, Member>,
    /// Those that have said where they listen.
    listening: BTreeSet<PeerId>,
    /// Those that could not be connected with another peer, in either direction.
    isolated: BTreeSet<PeerId>,
    expelled: BTreeSet<[u8; 32]>,
    /// The identities that have accused an identity of wrong bytes, also on connections that have
    /// ended.
    accusers: BTreeMap<[u8; 32], BTreeSet<[u8; 32]>>,
    failures: Failures,
    random: Random,
}

/// How often the connection of two peers has failed; the smaller number comes first.
#[derive(Default)]
struct Failures(BTreeMap<(PeerId, PeerId), u8>);

impl Failures {
    fn of(&self, one: PeerId, other: PeerId) -> u8 {
        self.0.get(&(one.min(other), one.max(other))).copied().unwrap_or_default()
    }

    fn set(&mut self, one: PeerId, other: PeerId, failures: u8) {
        self.0.insert((one.min(other), one.max(other)), failures);
    }
}

impl Members {
    pub(super) fn new(random: Random) -> Self {
        let (members, listening, isolated) = Default::default();
        let (expelled, accusers, failures) = Default::default();
        Self { next: 1, members, listening, isolated, expelled, accusers, failures, random }
    }

    pub(super) fn next_id(&self) -> PeerId {
        PeerId(self.next)
    }

    pub(super) fn get(&self, peer: PeerId) -> Option<&Member> {
        self.members.get(&peer)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, &Member)> {
        self.members.iter().map(|(peer, member)| (*peer, member))
    }

    /// The peers that have said where they listen.
    pub(super) fn listening(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.listening.iter().copied()
    }

    /// The peers that could not be connected with another.
    pub(super) fn isolated(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.isolated.iter().copied()
    }

    pub(super) fn expelled(&self) -> &BTreeSet<[u8; 32]> {
        &self.expelled
    }

    pub(super) fn is_expelled(&self, identity: &[u8; 32]) -> bool {
        self.expelled.contains(identity)
    }

    pub(super) fn join(&mut self, identity: [u8; 32]) -> PeerId {
        let peer = self.next_id();
        self.next += 1;
        if !self.is_expelled(&identity) {
            let addresses = None;
            let neighbours = BTreeSet::new();
            self.members.insert(peer, Member { identity, chunks: 0, addresses, neighbours });
        }
        peer
    }

    pub(super) fn count(&mut self, peer: PeerId, chunks: u64) {
        if let Some(member) = self.members.get_mut(&peer) {
            member.chunks += chunks;
        }
    }

    /// A peer has at most so many chunks: it has reported some that did not come.
    pub(super) fn limit(&mut self, peer: PeerId, most: u64) {
        if let Some(member) = self.members.get_mut(&peer) {
            member.chunks = member.chunks.min(most);
        }
    }

    /// A peer has said where it listens: it is introduced to others.
    pub(super) fn listen(
        &mut self,
        peer: PeerId,
        addresses: Vec<String>,
    ) -> Vec<(PeerId, Message)> {
        let Some(member) = self.members.get_mut(&peer) else { return Vec::new() };
        if member.addresses.replace(addresses).is_some() {
            return Vec::new();
        }
        self.listening.insert(peer);
        self.introduce(peer, DEGREE)
    }

    /// Introduces `peer` to up to `count` others, those with the fewest neighbours of a random
    /// sample first.
    fn introduce(&mut self, peer: PeerId, count: usize) -> Vec<(PeerId, Message)> {
        let chosen = self.choose(peer, count);
        chosen.into_iter().flat_map(|other| self.pair(peer, other)).collect()
    }

    fn choose(&mut self, peer: PeerId, count: usize) -> Vec<PeerId> {
        let Some(member) = self.members.get(&peer) else { return Vec::new() };
        let open = |id: &PeerId| {
            let few = |other: &Member| other.neighbours.len() < MOST;
            *id != peer
                && self.members.get(id).is_some_and(few)
                && !member.neighbours.contains(id)
                && self.failures.of(peer, *id) < ATTEMPTS
        };
        let mut chosen = BTreeSet::new();
        if self.listening.len() > 8 * DEGREE {
            // A random number is nearly always that of a peer.
            for _ in 0..8 * count {
                let from = PeerId(1 + self.random.below(self.next - 1));
                let found = self.listening.range(from..).next();
                chosen.extend(found.filter(|id| open(id)));
                if chosen.len() >= count {
                    return chosen.into_iter().collect();
                }
            }
        }
        let degree = |id: &PeerId| self.members.get(id).map_or(0, |one| one.neighbours.len());
        let all = self.listening.iter().filter(|id| open(id));
        let mut all: Vec<(usize, PeerId)> = all.map(|id| (degree(id), *id)).collect();
        all.sort_unstable();
        chosen.extend(all.into_iter().map(|(_, id)| id).take(count - chosen.len().min(count)));
        chosen.into_iter().collect()
    }

    /// The messages by which `dialer` connects to `other`, which connects by itself if that takes
    /// long.
    fn pair(&mut self, dialer: PeerId, other: PeerId) -> Vec<(PeerId, Message)> {
        let meet = |members: &Self, peer: PeerId, dial: bool| {
            let member = members.members.get(&peer)?;
            let addresses = member.addresses.clone()?;
            Some(Message::Meet { peer, identity: member.identity, addresses, dial })
        };
        let (Some(to), Some(from)) = (meet(self, other, true), meet(self, dialer, false)) else {
            return Vec::new();
        };
        for (one, another) in [(dialer, other), (other, dialer)] {
            if let Some(member) = self.members.get_mut(&one) {
                member.neighbours.insert(another);
            }
        }
        // The one that listens is told first.
        vec![(other, from), (dialer, to)]
    }

    /// `from` has no connection to `other`: first, the other direction is tried; then, another
    /// peer.
    pub(super) fn reverse(&mut self, from: PeerId, other: PeerId) -> Vec<(PeerId, Message)> {
        if !self.separate(from, other) {
            return Vec::new();
        }
        let failures = self.failures.of(from, other).saturating_add(1);
        self.failures.set(from, other, failures);
        let mut messages = vec![(other, Message::Part(from))];
        if failures == 1 {
            messages.extend(self.pair(other, from));
        } else {
            self.isolated.extend([from, other]);
            messages.extend(self.introduce(from, 1));
        }
        messages
    }

    fn separate(&mut self, one: PeerId, other: PeerId) -> bool {
        let first =
            self.members.get_mut(&one).is_some_and(|member| member.neighbours.remove(&other));
        let second =
            self.members.get_mut(&other).is_some_and(|member| member.neighbours.remove(&one));
        first && second
    }

    /// A peer is gone. Its neighbours forget it, and those that have few others get new ones.
    pub(super) fn leave(&mut self, peer: PeerId) -> Vec<(PeerId, Message)> {
        let Some(gone) = self.members.remove(&peer) else { return Vec::new() };
        self.listening.remove(&peer);
        self.isolated.remove(&peer);
        self.failures.0.retain(|(one, other), _| *one != peer && *other != peer);
        let mut messages = Vec::new();
        for other in gone.neighbours {
            let Some(member) = self.members.get_mut(&other) else { continue };
            member.neighbours.remove(&peer);
            let few = member.neighbours.len() < DEGREE / 2;
            messages.push((other, Message::Part(peer)));
            if few {
                messages.extend(self.introduce(other, 1));
            }
        }
        messages
    }

    /// Counts an accusation; returns how many identities have accused that of `peer`.
    pub(super) fn accuse(&mut self, peer: PeerId, accuser: PeerId) -> usize {
        // The accused may have reported the end of their connection before.
        let met = self.separate(accuser, peer) || self.failures.of(accuser, peer) > 0;
        let identity = |peer| self.members.get(&peer).map(|member| member.identity);
        let (Some(accused), Some(by), true) = (identity(peer), identity(accuser), met) else {
            return 0;
        };
        // The accuser does not connect to it again.
        self.failures.set(accuser, peer, ATTEMPTS);
        let accusers = self.accusers.entry(accused).or_default();
        accusers.insert(by);
        accusers.len()
    }

    /// Expels the identity of a peer, and returns all peers that have it.
    pub(super) fn expel(&mut self, peer: PeerId) -> Vec<PeerId> {
        let Some(identity) = self.members.get(&peer).map(|member| member.identity) else {
            return Vec::new();
        };
        self.accusers.remove(&identity);
        self.expelled.insert(identity);
        let same = self.members.iter().filter(|(_, member)| member.identity == identity);
        same.map(|(peer, _)| *peer).collect()
    }
}
