//! Two connections on a simulated link with its own clock.

use levada_core::{SecretKey, SystemRandom};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::{Class, ClientConfig, Connection, Error, Event, Options, Read, ServerConfig, StreamId};

pub(super) fn key() -> SecretKey {
    SecretKey::generate(&SystemRandom).unwrap()
}

/// One end, with its side of the link.
pub(super) struct End {
    pub(super) connection: Connection,
    pub(super) events: VecDeque<Event>,
    pub(super) error: Option<Error>,
    /// All bytes this end has ever sent.
    pub(super) sent: usize,
    /// Lengths of the records it sent.
    pub(super) records: Vec<usize>,
    /// In flight to this end: the time of arrival, and the bytes.
    wire: VecDeque<(Instant, Vec<u8>)>,
    arrived: Vec<u8>,
}

impl End {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            events: VecDeque::new(),
            error: None,
            sent: 0,
            records: Vec::new(),
            wire: VecDeque::new(),
            arrived: Vec::new(),
        }
    }

    fn note(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
        while let Some(event) = self.connection.poll_event() {
            self.events.push_back(event);
        }
    }

    fn transmit(&mut self, now: Instant) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.connection.wants_transmit() {
            self.connection.transmit(now, &mut bytes);
            self.connection.written();
            self.note(Ok(()));
            self.sent += bytes.len();
            self.records.extend(record_lengths(&bytes));
        }
        bytes
    }

    pub(super) fn take(&mut self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let at = self.events.iter().position(wanted)?;
        self.events.remove(at)
    }

    /// The stream that the peer opened next.
    pub(super) fn accept(&mut self) -> StreamId {
        match self.take(|event| matches!(event, Event::Opened(_))) {
            Some(Event::Opened(id)) => id,
            _ => panic!("no stream was opened: {:?}", self.error),
        }
    }

    /// Reads all received messages; the last may be incomplete.
    pub(super) fn read_all(&mut self, id: StreamId) -> Vec<Vec<u8>> {
        let mut messages = vec![vec![]];
        let mut buf = [0; 5000];
        while let Ok(Read::Data { len, end }) = self.connection.read(id, &mut buf) {
            messages.last_mut().unwrap().extend(&buf[..len]);
            if end {
                messages.push(vec![]);
            }
        }
        messages
    }
}

pub(super) struct Pair {
    pub(super) client: End,
    pub(super) server: End,
    pub(super) now: Instant,
    /// The one-way delay of the link.
    pub(super) delay: Duration,
    /// The link delivers in pieces of at most this many bytes.
    pub(super) piece: usize,
}

/// Keys and configurations of a client and a server, which outlive a connection.
pub(super) struct Endpoints {
    pub(super) client: ClientConfig,
    pub(super) server: ServerConfig,
    pub(super) client_key: SecretKey,
    pub(super) server_key: SecretKey,
}

impl Endpoints {
    pub(super) fn new() -> Self {
        let client_key = key();
        let server_key = key();
        Self {
            client: ClientConfig::new(&client_key).unwrap(),
            server: ServerConfig::new(&server_key).unwrap(),
            client_key,
            server_key,
        }
    }

    pub(super) fn pair(&self, client: Options, server: Options) -> Pair {
        let now = Instant::now();
        let expected = Some(self.server_key.identity());
        let client = Connection::client(&self.client, expected, client, now).unwrap();
        let server = Connection::server(&self.server, server, now).unwrap();
        Pair {
            client: End::new(client),
            server: End::new(server),
            now,
            delay: Duration::from_millis(5),
            piece: usize::MAX,
        }
    }
}

impl Pair {
    /// A connected pair with default options.
    pub(super) fn connected() -> Self {
        Self::with(Options::default(), Options::default())
    }

    pub(super) fn with(client: Options, server: Options) -> Self {
        let mut pair = Endpoints::new().pair(client, server);
        pair.connect();
        pair
    }

    pub(super) fn connect(&mut self) {
        self.run();
        for end in [&mut self.client, &mut self.server] {
            assert_eq!(end.error, None);
            assert_eq!(end.take(|event| *event == Event::Connected), Some(Event::Connected));
        }
    }

    /// Opens a stream at the client; returns it as both ends see it.
    pub(super) fn open(&mut self, class: Class) -> (StreamId, StreamId) {
        let id = self.client.connection.open(class).unwrap();
        self.run();
        (id, self.server.accept())
    }

    /// Both ends send their pending bytes; true if there were any.
    pub(super) fn send(&mut self) -> bool {
        let now = self.now;
        let arrival = self.now + self.delay;
        let bytes = [&mut self.client, &mut self.server].map(|end| end.transmit(now));
        for (to, bytes) in [&mut self.server, &mut self.client].into_iter().zip(&bytes) {
            let pieces = bytes.chunks(self.piece);
            to.wire.extend(pieces.map(|piece| (arrival, piece.to_vec())));
        }
        bytes.iter().any(|bytes| !bytes.is_empty())
    }

    /// Delivers what has arrived by now.
    pub(super) fn deliver(&mut self) {
        let now = self.now;
        for end in [&mut self.client, &mut self.server] {
            while end.wire.front().is_some_and(|(at, _)| *at <= now) && end.error.is_none() {
                let (_, bytes) = end.wire.pop_front().unwrap();
                end.arrived.extend(bytes);
                let result = end.connection.receive(now, &mut end.arrived);
                end.arrived.drain(..*result.as_ref().unwrap_or(&0));
                end.note(result.map(drop));
            }
        }
    }

    /// Sends, and advances the clock to the next arrival. False if nothing is in flight.
    pub(super) fn step(&mut self) -> bool {
        self.send();
        let wires = [&self.client, &self.server]
            .map(|end| end.wire.front().filter(|_| end.error.is_none()).map(|(at, _)| *at));
        let Some(next) = wires.into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        self.deliver();
        true
    }

    /// Runs until nothing is in flight.
    pub(super) fn run(&mut self) {
        while self.step() {}
    }

    /// Advances the clock by `time`, and runs the timers.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.run();
            let timers = [&self.client, &self.server].map(|end| end.connection.timeout());
            match timers.into_iter().flatten().min() {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ => break,
            }
            for end in [&mut self.client, &mut self.server] {
                let result = end.connection.handle_timeout(self.now);
                end.note(result);
            }
        }
        self.now = self.now.max(until);
    }

    /// Takes the bytes that the client would send; they are not delivered.
    pub(super) fn intercept(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.client.connection.transmit(self.now, &mut bytes);
        self.client.connection.written();
        bytes
    }

    /// Delivers bytes to the server; returns its result.
    pub(super) fn inject(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.server.connection.receive(self.now, &mut bytes.to_vec())
    }

    /// Moves `messages` from the client's to the server's end of a stream.
    pub(super) fn transfer(&mut self, ids: (StreamId, StreamId), messages: &[Vec<u8>]) {
        let mut got = vec![vec![]];
        for message in messages {
            let mut done = 0;
            loop {
                match self.client.connection.write(ids.0, &message[done..], true).unwrap() {
                    Some(len) if done + len == message.len() => break,
                    Some(len) => done += len,
                    None => assert!(self.step(), "blocked, and nothing is in flight"),
                }
                append(&mut got, self.server.read_all(ids.1));
            }
        }
        self.run();
        append(&mut got, self.server.read_all(ids.1));
        assert_eq!(got.pop(), Some(vec![]));
        assert!(got == messages, "other messages than were sent");
    }
}

fn append(got: &mut Vec<Vec<u8>>, more: Vec<Vec<u8>>) {
    let mut more = more.into_iter();
    got.last_mut().unwrap().extend(more.next().unwrap());
    got.extend(more);
}

/// The lengths of the records in `bytes`, headers included.
pub(super) fn record_lengths(mut bytes: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(length) = crate::record::length(bytes).unwrap() {
        lengths.push(length);
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "a truncated record");
    lengths
}
