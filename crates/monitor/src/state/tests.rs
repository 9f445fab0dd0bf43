use std::net::SocketAddr;

use super::*;

const NOW: Duration = Duration::ZERO;
const OFFER_TIMEOUT: Duration = Duration::from_secs(5);

/// Places an offer at [`NOW`].
fn place(state: &mut State, offer: Offer, endpoints: Endpoints) -> Placed {
    state.place(NOW, offer, endpoints, Identity::Cookie(0))
}

fn endpoints(namespace: u64, local: u16, remote: u16) -> Endpoints {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    Endpoints { namespace, local: address(local), remote: address(remote) }
}

fn make_offer(client: u32, connection: u64) -> Offer {
    Offer { client, connection }
}

fn state(clients: u32) -> State {
    let mut state = State::new(OFFER_TIMEOUT);
    (1..=clients).for_each(|client| state.join(client));
    state
}

const WAITING: Placed = Placed::Waiting { replaced: None };

#[test]
fn the_ends_of_a_connection_are_paired() {
    let mut state = state(2);
    let near = endpoints(1, 10, 20);
    assert_eq!(place(&mut state, make_offer(1, 5), near), WAITING);
    let (counterpart, _) = state.counterpart(&near.reversed()).unwrap();
    assert_eq!(counterpart, make_offer(1, 5));
    // Both ends may be in one process.
    assert_eq!(place(&mut state, make_offer(1, 6), endpoints(1, 30, 31)), WAITING);
    let first = make_offer(1, 6);
    assert_eq!(place(&mut state, make_offer(1, 7), endpoints(1, 31, 30)), Placed::Paired { first });
    let first = make_offer(1, 5);
    assert_eq!(place(&mut state, make_offer(2, 5), near.reversed()), Placed::Paired { first });
    assert_eq!(state.next_expiry(), None);
}

#[test]
fn other_namespaces_and_addresses_are_not_paired() {
    let mut state = state(1);
    for (number, endpoints) in
        [endpoints(1, 10, 20), endpoints(2, 20, 10), endpoints(1, 10, 21), endpoints(1, 21, 11)]
            .into_iter()
            .enumerate()
    {
        assert_eq!(place(&mut state, make_offer(1, number as u64), endpoints), WAITING);
    }
}

#[test]
fn a_socket_that_is_connected_to_itself_is_refused() {
    let mut state = state(1);
    let refused = Placed::Refused(Refusal::NoPeer);
    assert_eq!(place(&mut state, make_offer(1, 1), endpoints(1, 10, 10)), refused);
    assert_eq!(place(&mut state, make_offer(1, 1), endpoints(1, 10, 10)), refused);
}

#[test]
fn a_second_offer_of_the_same_end_replaces_the_first() {
    let mut state = state(2);
    assert_eq!(place(&mut state, make_offer(1, 1), endpoints(1, 10, 20)), WAITING);
    let replaced = Placed::Waiting { replaced: Some(make_offer(1, 1)) };
    assert_eq!(place(&mut state, make_offer(2, 1), endpoints(1, 10, 20)), replaced);
    // A number that is used again stands for the new connection.
    assert_eq!(place(&mut state, make_offer(2, 1), endpoints(1, 11, 20)), WAITING);
    assert!(state.counterpart(&endpoints(1, 20, 10)).is_none());
}

#[test]
fn offers_expire_in_their_order() {
    let mut state = state(2);
    let second = Duration::from_secs(1);
    assert_eq!(place(&mut state, make_offer(1, 1), endpoints(1, 10, 20)), WAITING);
    assert_eq!(
        state.place(second, make_offer(2, 1), endpoints(1, 11, 20), Identity::Cookie(0)),
        WAITING
    );
    assert_eq!(state.next_expiry(), Some(OFFER_TIMEOUT));
    assert_eq!(state.expire(second), []);
    assert_eq!(state.expire(OFFER_TIMEOUT), [make_offer(1, 1)]);
    assert_eq!(state.next_expiry(), Some(OFFER_TIMEOUT + second));
    state.withdraw(make_offer(2, 1));
    assert_eq!(state.next_expiry(), None);
}

#[test]
fn a_client_has_a_limit_of_waiting_offers() {
    let mut state = state(2);
    for number in 0..PENDING as u64 {
        assert_eq!(place(&mut state, make_offer(1, number), endpoints(number, 10, 20)), WAITING);
    }
    let refused = Placed::Refused(Refusal::TooMany);
    assert_eq!(place(&mut state, make_offer(1, 1 << 40), endpoints(1, 11, 20)), refused);
    assert_eq!(place(&mut state, make_offer(2, 1), endpoints(1, 11, 20)), WAITING);
}

#[test]
fn two_clients_are_introduced_once() {
    let mut state = state(3);
    assert!(!state.introduce(1, 1));
    assert!(state.introduce(1, 2));
    assert!(!state.introduce(2, 1));
    assert!(state.introduce(3, 1));
    let mut peers = state.leave(1);
    peers.sort_unstable();
    assert_eq!(peers, [2, 3]);
    assert_eq!(state.leave(2), []);
    state.join(2);
    assert!(state.introduce(2, 3));
    state.separate(3, 2);
    assert!(state.introduce(2, 3));
}

/// Connections, and what the ends of them have offered.
struct Simulation {
    seed: u64,
    state: State,
    now: Duration,
    connections: Vec<Connection>,
    next_offer: u64,
}

struct Connection {
    endpoints: Endpoints,
    ends: [End; 2],
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Open,
    Waiting(Offer),
    Paired,
    Closed,
}

impl Simulation {
    /// A number below `limit` (SplitMix64).
    fn random(&mut self, limit: usize) -> usize {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// Opens a connection, with addresses that no open one has. Few are possible, so that they are
    /// used again.
    fn open(&mut self) {
        let [namespace, local, remote] = [2, 3, 3].map(|limit| self.random(limit));
        let endpoints = endpoints(namespace as u64, local as u16, 10 + remote as u16);
        let is_free =
            |other: &Connection| other.endpoints != endpoints || other.ends == [End::Closed; 2];
        if self.connections.iter().all(is_free) {
            self.connections.push(Connection { endpoints, ends: [End::Open; 2] });
        }
    }

    fn place(&mut self, at: usize, side: usize) {
        let Connection { endpoints, ends } = &self.connections[at];
        let endpoints = *endpoints;
        let ends = *ends;
        let offer = make_offer(1 + self.random(4) as u32, self.next_offer);
        self.next_offer += 1;
        let endpoints = if side == 0 { endpoints } else { endpoints.reversed() };
        let placed = self.state.place(self.now, offer, endpoints, Identity::Cookie(0));
        let expected = match (ends[side], ends[1 - side]) {
            (_, End::Waiting(first)) => Placed::Paired { first },
            // Two processes that share an end can both offer it.
            (End::Waiting(old), _) => Placed::Waiting { replaced: Some(old) },
            _ => WAITING,
        };
        assert_eq!(placed, expected);
        let ends = &mut self.connections[at].ends;
        match placed {
            Placed::Paired { .. } => *ends = [End::Paired; 2],
            _ => ends[side] = End::Waiting(offer),
        }
    }

    fn close(&mut self, at: usize, side: usize) {
        if let End::Waiting(offer) = self.connections[at].ends[side] {
            self.state.withdraw(offer);
        }
        self.connections[at].ends[side] = End::Closed;
    }

    fn leave(&mut self) {
        let client = 1 + self.random(4) as u32;
        self.state.leave(client);
        self.state.join(client);
        self.ended(|offer| offer.client == client);
    }

    fn pass_time(&mut self) {
        let passed = self.random(2000);
        self.now += Duration::from_millis(passed as u64);
        let expired = self.state.expire(self.now);
        self.ended(|offer| expired.contains(offer));
    }

    fn ended(&mut self, has: impl Fn(&Offer) -> bool) {
        for end in self.connections.iter_mut().flat_map(|one| &mut one.ends) {
            if matches!(end, End::Waiting(offer) if has(offer)) {
                *end = End::Open;
            }
        }
    }

    fn step(&mut self) {
        if self.connections.is_empty() {
            return self.open();
        }
        let at = self.random(self.connections.len());
        let side = self.random(2);
        match self.random(10) {
            0 | 1 => self.open(),
            2..=5 if matches!(self.connections[at].ends[side], End::Open | End::Waiting(_)) => {
                self.place(at, side);
            }
            6 | 7 => self.close(at, side),
            8 => self.pass_time(),
            _ if self.random(5) == 0 => self.leave(),
            _ => {}
        }
        let waits = |end: &&End| matches!(end, End::Waiting(_));
        let waiting = self.connections.iter().flat_map(|one| &one.ends).filter(waits).count();
        assert_eq!(self.state.pending.len(), waiting);
        assert_eq!(self.state.by_age.len(), waiting);
        let offers = self.state.clients.values().map(|client| client.offers.len());
        assert_eq!(offers.sum::<usize>(), waiting);
    }
}

#[test]
fn only_the_ends_of_one_connection_are_paired_in_any_order_of_events() {
    for seed in 0..200 {
        let mut simulation =
            Simulation { seed, state: state(4), now: NOW, connections: Vec::new(), next_offer: 0 };
        for _ in 0..300 {
            simulation.step();
        }
        simulation.now += OFFER_TIMEOUT;
        simulation.pass_time();
        let State { pending, by_age, .. } = &simulation.state;
        assert!(pending.is_empty() && by_age.is_empty(), "seed {seed}");
    }
}
