//! The coordinator alone: limits, faults, and its own books.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Coordinator, Placement, Settings};
use crate::coordinator::Input;
use crate::message::Message;
use crate::{ChunkSize, Geometry, Output, PeerId};

const START: Duration = Duration::ZERO;

/// Does what a driver does, and checks what it may rely on.
struct Driver {
    coordinator: Coordinator,
    cache: BTreeSet<u32>,
    capacity: usize,
    /// Chunks that have not left yet.
    leaving: Vec<(PeerId, u32)>,
    messages: Vec<(PeerId, Message)>,
    ended: Vec<PeerId>,
    source_is_readable: bool,
}

impl Driver {
    fn new(chunks: u32, settings: Settings) -> Self {
        let geometry = Geometry::new(u64::from(chunks) << 16, ChunkSize::DEFAULT).unwrap();
        Self {
            coordinator: Coordinator::new(geometry, settings),
            cache: BTreeSet::new(),
            capacity: settings.cache.max(1),
            leaving: Vec::new(),
            messages: Vec::new(),
            ended: Vec::new(),
            source_is_readable: true,
        }
    }

    /// A peer that has these chunks.
    fn join(&mut self, have: &[std::ops::Range<u32>]) -> PeerId {
        let peer = self.coordinator.next_id();
        self.handle(START, Input::Joined([peer.0 as u8; 32]));
        self.handle(START, Input::Message(peer, Message::Have(have.to_vec())));
        peer
    }

    fn request(&mut self, now: Duration, peer: PeerId, chunks: &[u32]) {
        let requests = chunks.iter().map(|index| (*index, 0)).collect();
        self.handle(now, Input::Message(peer, Message::Request(requests)));
    }

    fn handle(&mut self, now: Duration, input: Input) {
        self.coordinator.handle(now, input);
        self.settle(now);
    }

    fn settle(&mut self, now: Duration) {
        while let Some(output) = self.coordinator.poll() {
            match output {
                Output::Send(to, message) => self.messages.push((to, message)),
                Output::SendChunk { to, index, .. } => {
                    assert!(self.cache.contains(&index), "{index} is not in the cache");
                    self.leaving.push((to, index));
                }
                Output::Load(index) => {
                    let good = self.source_is_readable;
                    if good {
                        self.insert(index);
                    }
                    self.coordinator.handle(now, Input::Loaded { index, good });
                }
                Output::Keep { index, .. } => self.insert(index),
                Output::Evict(index) => assert!(self.cache.remove(&index)),
                Output::Disconnect(peer) => self.ended.push(peer),
                Output::Connect { .. } | Output::Allow { .. } => panic!("{output:?}"),
            }
        }
    }

    fn insert(&mut self, index: u32) {
        assert!(self.cache.insert(index) && self.cache.len() <= self.capacity);
    }

    fn fetches(&self) -> Vec<(PeerId, u32)> {
        let fetches = self.messages.iter().filter_map(|(to, message)| match message {
            Message::Fetch(index) => Some((*to, *index)),
            _ => None,
        });
        fetches.collect()
    }

    /// The coordinator's books agree with each other.
    fn check(&self) {
        let one = &self.coordinator;
        let at_hand = |index: &u32| one.cache.contains(*index) || one.pending.contains(*index);
        for (peer, member) in one.members() {
            let wanted: Vec<u32> = member.wanted.keys().copied().collect();
            let ready = wanted.iter().filter(|index| at_hand(index)).count();
            assert_eq!(member.ready, ready, "{peer:?} {member:?}");
            assert!(wanted.len() + member.sending.len() <= 32);
            let fetches = one.pending.iter().filter(|(_, from)| *from == peer).count();
            assert_eq!(member.fetches as usize, fetches);
            assert_eq!(one.members.waiting.contains(&peer), !wanted.is_empty());
            for index in wanted {
                assert!(one.requests.waiters(index).any(|waiter| waiter == peer));
                assert_eq!(one.requests.is_unserved(index), !at_hand(&index));
            }
            let chunks = 0..one.geometry.chunks();
            let promised = chunks.filter(|at| one.owners.promised(*at).any(|to| to == peer));
            assert_eq!(member.promised, promised.count());
        }
        let all = &one.members;
        let sets = [&all.waiting, &all.hungry, &all.starving, &all.complete];
        assert!(sets.into_iter().flatten().all(|peer| all.get(*peer).is_some()));
    }
}

fn settings(cache: usize) -> Settings {
    Settings { cache, ..Settings::default() }
}

#[test]
fn the_books_agree_whatever_peers_do() {
    bolero::check!().with_type::<(u8, bool, Vec<(u8, u8, u8)>)>().for_each(
        |(cache, blocks, events)| {
            let placement = if *blocks { Placement::Blocks } else { Placement::Stripes };
            let settings = Settings { placement, ..settings(usize::from(cache % 5)) };
            let mut driver = Driver::new(20, settings);
            let mut now = START;
            for (event, peer, index) in events.iter().take(200) {
                let from = PeerId(u32::from(peer % 6));
                let index = u32::from(index % 22);
                let message = |message| Input::Message(from, message);
                let input = match event % 13 {
                    0 => Input::Joined([peer % 4; 32]),
                    1 => message(Message::Have(vec![index..index + 1, index + 1..index + 3])),
                    2 => message(Message::Have(Vec::new())),
                    3..=5 => message(Message::Request(vec![(index, 0), (index / 2, 1), (3, 9)])),
                    6 => message(Message::Decline(index)),
                    7 => message(Message::Provide(vec![index..index + 1, index + 1..index + 2])),
                    8 => Input::Left(from),
                    9 => {
                        let good = *peer < 200;
                        let pending = driver.coordinator.pending.iter().next();
                        let (from, index) =
                            pending.map_or((from, index), |(index, from)| (from, index));
                        Input::Chunk { from, index, good }
                    }
                    10 => {
                        now += Duration::from_millis(u64::from(*peer) * 20);
                        driver.source_is_readable = *peer % 7 > 0;
                        driver.coordinator.handle_timeout(now);
                        driver.settle(now);
                        continue;
                    }
                    _ if driver.leaving.is_empty() => continue,
                    number => {
                        let at = usize::from(*peer) % driver.leaving.len();
                        let (to, index) = driver.leaving.swap_remove(at);
                        match number {
                            11 => Input::Sent { to, index },
                            _ => Input::Unreadable { to, index },
                        }
                    }
                };
                driver.handle(now, input);
                driver.check();
                // Time alone does not lead to the same moment again.
                assert!(driver.coordinator.next_timeout().is_none_or(|due| due > now));
            }
        },
    );
}

#[test]
fn a_peer_with_too_many_requests_is_disconnected() {
    let mut driver = Driver::new(100, settings(1));
    let [first, second] = [(); 2].map(|()| driver.join(&[]));
    driver.request(START, first, &(0..32).collect::<Vec<u32>>());
    assert!(driver.ended.is_empty());
    driver.request(START, first, &[40]);
    driver.request(START, second, &[100]);
    assert_eq!(driver.ended, [first, second]);
    driver.check();
}

#[test]
fn a_provider_that_does_not_answer_is_replaced_by_another() {
    let mut driver = Driver::new(4, settings(2));
    let providers = [(); 2].map(|()| driver.join(std::slice::from_ref(&(0..4))));
    let peer = driver.join(&[]);
    driver.request(START, peer, &[3]);
    let first = driver.fetches()[0].0;
    let due = driver.coordinator.next_timeout().unwrap();
    driver.coordinator.handle_timeout(due);
    driver.settle(due);
    let second = driver.fetches()[1].0;
    assert_eq!(BTreeSet::from([first, second]), BTreeSet::from(providers));
    // What comes late is not kept.
    driver.handle(due, Input::Chunk { from: first, index: 3, good: true });
    assert!(driver.cache.is_empty());
    driver.handle(due, Input::Chunk { from: second, index: 3, good: true });
    assert_eq!(driver.leaving, [(peer, 3)]);
    assert_eq!(driver.coordinator.counters().source_reads, 0);
}

#[test]
fn a_peer_that_sends_wrong_bytes_is_expelled_and_named() {
    let mut driver = Driver::new(4, settings(2));
    let wrong = driver.join(std::slice::from_ref(&(0..4)));
    let peer = driver.join(&[]);
    driver.request(START, peer, &[3]);
    driver.handle(START, Input::Chunk { from: wrong, index: 3, good: false });
    assert!(driver.coordinator.expelled().iter().eq([&[wrong.0 as u8; 32]]));
    // No other peer has it: it comes from the source.
    assert_eq!((&driver.ended[..], &driver.leaving[..]), (&[wrong][..], &[(peer, 3)][..]));
    let again = driver.coordinator.next_id();
    driver.handle(START, Input::Joined([wrong.0 as u8; 32]));
    assert_eq!(driver.ended, [wrong, again]);
}

#[test]
fn a_peer_that_does_not_read_holds_up_no_other() {
    let mut driver = Driver::new(200, Settings { wait: 3, ..settings(2) });
    let provider = driver.join(std::slice::from_ref(&(0..200)));
    let [stuck, peer] = [(); 2].map(|()| driver.join(&[]));
    let mut now = START;
    driver.request(now, stuck, &(0..32).collect::<Vec<u32>>());
    driver.request(now, peer, &(50..80).collect::<Vec<u32>>());
    let mut received = 0;
    let mut answered = 0;
    for _ in 0..1000 {
        for (from, index) in driver.fetches().split_off(answered) {
            answered += 1;
            assert_eq!(from, provider);
            driver.handle(now, Input::Chunk { from, index, good: true });
        }
        if let Some(at) = driver.leaving.iter().position(|(to, _)| *to == peer) {
            let (to, index) = driver.leaving.swap_remove(at);
            received += 1;
            driver.handle(now, Input::Sent { to, index });
        }
        now += Duration::from_millis(50);
        driver.coordinator.handle_timeout(now);
        driver.settle(now);
    }
    assert_eq!(received, 30);
}

#[test]
fn chunks_that_no_party_has_are_said_to_be_lost_until_one_comes_back() {
    let mut driver = Driver::new(4, settings(2));
    driver.source_is_readable = false;
    let peer = driver.join(std::slice::from_ref(&(0..3)));
    driver.request(START, peer, &[3]);
    assert!(driver.messages.contains(&(peer, Message::Lost(runs(3)))));
    assert_eq!(driver.coordinator.unreadable().count(), 1);
    let late = driver.join(&[]);
    assert!(driver.messages.contains(&(late, Message::Lost(runs(3)))));
    driver.join(&runs(3));
    assert!(driver.messages.contains(&(peer, Message::Have(runs(3)))));
    assert_eq!(driver.coordinator.unreadable().count(), 0);
}

/// One chunk.
fn runs(index: u32) -> Vec<std::ops::Range<u32>> {
    vec![Some(index..index + 1)].into_iter().flatten().collect()
}
