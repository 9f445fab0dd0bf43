//! A client, middleboxes and a server that are joined in memory, with a place on each link where a
//! test can attack.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use levada_core::{Identity, SecretKey, SystemRandom};

use crate::client::Bound;
use crate::path::tests::path;
use crate::sender::Sender;
use crate::{
    Action, ContextError, Direction, HopSetup, HopTickets, Inspector, Kem, Path, PathConnection,
    PathEvent, PathSessions, PathTickets, Piece, Received, Relay, Right, ServerPaths, frame,
};
use levada_channel::{ClientConfig, ServerConfig};

/// What one middlebox saw: direction, context, data, end.
pub(crate) type Seen = Arc<Mutex<Vec<(Direction, u8, Vec<u8>, bool)>>>;

/// What a middlebox does in a test.
pub(crate) type Behaviour = Box<dyn FnMut(&Piece<'_>) -> Action + Send>;

struct Watch {
    seen: Seen,
    behaviour: Behaviour,
}

impl Inspector for Watch {
    fn record(&mut self, piece: Piece<'_>) -> Action {
        let Piece { direction, context, data, end, .. } = piece;
        self.seen.lock().unwrap().push((direction, context, data.to_vec(), end));
        (self.behaviour)(&piece)
    }
}

/// The keys and stores of all parties, which outlive a session.
pub(crate) struct Parties {
    pub(crate) client: ClientConfig,
    pub(crate) tickets: Arc<PathTickets>,
    pub(crate) server: ServerPaths,
    pub(crate) hops: Vec<HopSetup>,
    pub(crate) path: Path,
}

impl Parties {
    /// As many middleboxes as the rows are long; `rights[c]` are those in context c + 1.
    pub(crate) fn new(rights: &[&[Right]]) -> Self {
        let key = || Arc::new(SecretKey::generate(&SystemRandom).unwrap());
        let server = key();
        let hop = |_| HopSetup {
            key: key(),
            tickets: Arc::new(HopTickets::new(Duration::from_secs(3600))),
            policy: Arc::new(|_, _| Ok(())),
        };
        let hops: Vec<HopSetup> = (0..rights[0].len()).map(hop).collect();
        let keys: Vec<Identity> = hops.iter().map(|hop| hop.key.identity()).collect();
        Self {
            client: ClientConfig::new(&key()).unwrap(),
            tickets: Arc::default(),
            path: path(server.identity(), &keys, rights),
            server: ServerPaths {
                config: Arc::new(ServerConfig::new(&server).unwrap()),
                key: server,
                sessions: Arc::new(PathSessions::default()),
                tickets: 2,
                policy: Arc::new(|_| Ok(())),
                alter_share: None,
            },
            hops,
        }
    }
}

/// One session in memory.
pub(crate) struct Chain {
    pub(crate) client: PathConnection,
    pub(crate) relays: Vec<Relay>,
    pub(crate) server: PathConnection,
    pub(crate) seen: Vec<Seen>,
    /// Changes frames on a link (0 is next to the client) in a direction.
    pub(crate) attack: Option<Attack>,
    /// Received bytes that are not consumed, by link and direction.
    wires: Vec<[Vec<u8>; 2]>,
    pub(crate) now: Instant,
    /// Bytes that went over the client's link, by direction.
    pub(crate) client_link: [usize; 2],
}

/// Gets the link, the direction, and the whole frames that are sent; returns those that arrive.
pub(crate) type Attack = Box<dyn FnMut(usize, Direction, Vec<Vec<u8>>) -> Vec<Vec<u8>>>;

pub(crate) const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

impl Chain {
    pub(crate) fn new(parties: &Parties) -> Self {
        let pass = parties.hops.iter().map(|_| Box::new(|_: &Piece<'_>| Action::Pass) as Behaviour);
        Self::with(parties, pass.collect())
    }

    pub(crate) fn with(parties: &Parties, behaviours: Vec<Behaviour>) -> Self {
        Self::over(parties, &parties.hops, behaviours)
    }

    /// As [`Self::with`], over other middleboxes than those of the path.
    pub(crate) fn over(parties: &Parties, hops: &[HopSetup], behaviours: Vec<Behaviour>) -> Self {
        let now = Instant::now();
        let path = parties.path.clone();
        let client =
            PathConnection::client(&parties.client, parties.tickets.clone(), path, now).unwrap();
        let seen: Vec<Seen> = hops.iter().map(|_| Seen::default()).collect();
        let setups = hops.iter().zip(&seen).zip(behaviours);
        let relays = setups.map(|((setup, seen), behaviour)| {
            let watch = Watch { seen: seen.clone(), behaviour };
            Relay::new(setup.clone(), Box::new(watch), now)
        });
        Self {
            client,
            relays: relays.collect(),
            server: PathConnection::server(parties.server.clone(), now),
            wires: vec![[Vec::new(), Vec::new()]; hops.len() + 1],
            seen,
            attack: None,
            now,
            client_link: [0, 0],
        }
    }

    /// Moves bytes until nothing moves, or until a party fails; its number is 0 for the client,
    /// then the middleboxes, then the server.
    pub(crate) fn run(&mut self) -> Result<(), (usize, ContextError)> {
        loop {
            let mut moved = false;
            for (at, relay) in self.relays.iter_mut().enumerate() {
                relay.advance().map_err(|error| (at + 1, error))?;
            }
            for link in 0..self.wires.len() {
                for direction in DIRECTIONS {
                    moved |= self.carry(link, direction);
                    moved |= self.deliver(link, direction)?;
                }
            }
            if !moved {
                return Ok(());
            }
        }
    }

    fn carry(&mut self, link: usize, direction: Direction) -> bool {
        let mut bytes = Vec::new();
        match (direction, link) {
            (Direction::ToServer, 0) => self.client.transmit(&mut bytes),
            (Direction::ToClient, link) if link == self.relays.len() => {
                self.server.transmit(&mut bytes);
            }
            (Direction::ToServer, link) => self.relays[link - 1].transmit(direction, &mut bytes),
            (Direction::ToClient, link) => self.relays[link].transmit(direction, &mut bytes),
        }
        if bytes.is_empty() {
            return false;
        }
        if link == 0 {
            self.client_link[direction as usize] += bytes.len();
        }
        if let Some(attack) = &mut self.attack {
            bytes = attack(link, direction, frames(&bytes)).concat();
        }
        self.wires[link][direction as usize].extend_from_slice(&bytes);
        true
    }

    fn deliver(
        &mut self,
        link: usize,
        direction: Direction,
    ) -> Result<bool, (usize, ContextError)> {
        let wire = &mut self.wires[link][direction as usize];
        if wire.is_empty() {
            return Ok(false);
        }
        let count = self.relays.len();
        let (party, consumed) = match (direction, link) {
            (Direction::ToClient, 0) => (0, self.client.receive(wire, self.now)),
            (Direction::ToServer, link) if link == count => {
                (count + 1, self.server.receive(wire, self.now))
            }
            (Direction::ToServer, link) => {
                (link + 1, self.relays[link].receive(direction, wire, self.now))
            }
            (Direction::ToClient, link) => {
                (link, self.relays[link - 1].receive(direction, wire, self.now))
            }
        };
        let consumed = match consumed {
            Ok(consumed) => consumed,
            Err(error) => {
                wire.clear();
                return Err((party, error.cause().clone()));
            }
        };
        wire.drain(..consumed);
        Ok(consumed > 0)
    }

    /// Lets time pass for all parties; returns the first error and the party that found it.
    pub(crate) fn advance(&mut self, by: Duration) -> Result<(), (usize, ContextError)> {
        self.now += by;
        self.client.handle_timeout(self.now).map_err(|error| (0, error))?;
        for (at, relay) in (1..).zip(&mut self.relays) {
            relay.handle_timeout(self.now).map_err(|error| (at, error))?;
        }
        let server = self.relays.len() + 1;
        self.server.handle_timeout(self.now).map_err(|error| (server, error))
    }

    /// Puts frames on a link, as an attacker there does.
    pub(crate) fn inject(&mut self, link: usize, direction: Direction, bytes: &[u8]) {
        self.wires[link][direction as usize].extend_from_slice(bytes);
    }

    /// Sets the attack on one link in one direction.
    pub(crate) fn attack(
        &mut self,
        at: (usize, Direction),
        mut change: impl FnMut(Vec<Vec<u8>>) -> Vec<Vec<u8>> + 'static,
    ) {
        self.attack = Some(Box::new(
            move |link, direction, frames| {
                if (link, direction) == at { change(frames) } else { frames }
            },
        ));
    }

    /// Replaces each frame of a kind on one link in one direction.
    pub(crate) fn replace(
        &mut self,
        at: (usize, Direction),
        kind: u8,
        mut change: impl FnMut(Vec<u8>) -> Vec<Vec<u8>> + 'static,
    ) {
        self.attack(at, move |frames| {
            let change =
                |frame: Vec<u8>| if frame[0] == kind { change(frame) } else { vec![frame] };
            frames.into_iter().flat_map(change).collect()
        });
    }

    /// Everything that a session does: the handshake, a start, an exchange with a message in every
    /// context, and the close. Returns the first error and the party that found it.
    pub(crate) fn whole_session(&mut self) -> Result<(), (usize, ContextError)> {
        let server = self.relays.len() + 1;
        self.run()?;
        self.client.control(b"operation").map_err(|error| (0, error))?;
        self.run()?;
        self.server.start(true, Some([7; 16]), self.now).map_err(|error| (server, error))?;
        self.run()?;
        exchange(&mut self.client).map_err(|error| (0, error))?;
        self.run()?;
        exchange(&mut self.server).map_err(|error| (server, error))?;
        self.run()?;
        self.client.close().map_err(|error| (0, error))?;
        self.server.close().map_err(|error| (server, error))?;
        self.run()?;
        self.client.receive_end().map_err(|error| (0, error))?;
        self.server.receive_end().map_err(|error| (server, error))
    }

    /// The handshake, and a start with an operation in context 0, up to where requests can be made.
    pub(crate) fn open(&mut self) {
        self.run().unwrap();
        self.client.control(b"operation").unwrap();
        self.run().unwrap();
        let events = events(&mut self.server);
        assert!(events.contains(&PathEvent::Received(Received::Control(b"operation".to_vec()))));
        self.server.start(true, Some([7; 16]), self.now).unwrap();
        self.run().unwrap();
        let events = self::events(&mut self.client);
        assert!(matches!(events[..], [PathEvent::Bound { .. }, PathEvent::Ready]), "{events:?}");
    }
}

/// Sends a message in every context.
fn exchange(end: &mut PathConnection) -> Result<(), ContextError> {
    let contexts = end.path().map_or(0, |path| path.contexts.len()) as u8;
    for context in 1..=contexts {
        end.write(context, b"message")?;
    }
    end.finish()
}

/// Splits whole frames.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let length = frame::length(bytes).unwrap().unwrap();
        all.push(bytes[..length].to_vec());
        bytes = &bytes[length..];
    }
    all
}

pub(crate) fn events(connection: &mut PathConnection) -> Vec<PathEvent> {
    std::iter::from_fn(|| connection.poll_event()).collect()
}

/// A part of a message: context, data, origin, end.
pub(crate) type Part = (u8, Vec<u8>, u8, bool);

/// What arrived, with parts of one origin joined, and how many exchanges.
pub(crate) fn data_of(events: &[PathEvent]) -> (Vec<Part>, usize) {
    let mut all: Vec<Part> = Vec::new();
    let mut exchanges = 0;
    for event in events {
        match event {
            PathEvent::Received(Received::Data { context, data, origin, end }) => {
                match all
                    .last_mut()
                    .filter(|(last, _, from, ended)| last == context && from == origin && !ended)
                {
                    Some((_, bytes, _, ended)) => {
                        bytes.extend_from_slice(data);
                        *ended = *end;
                    }
                    None => all.push((*context, data.clone(), *origin, *end)),
                }
            }
            PathEvent::Received(Received::Exchange { .. }) => exchanges += 1,
            _ => {}
        }
    }
    (all, exchanges)
}

/// All kinds of key encapsulation.
pub(crate) const KEMS: [Kem; 2] = [Kem::X25519, Kem::Hybrid];

/// A sender with the keys of an endpoint, in any direction.
pub(crate) fn sender_of(bound: &Bound, direction: Direction) -> Sender {
    Sender::new(bound.keys.clone(), direction)
}
