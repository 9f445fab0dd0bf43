//! Peers that complete the handshake and then violate the protocol. The node answers with an error
//! or closes the connection; it does not panic, does not grow, keeps no state of them, and keeps
//! serving.

mod memory;
mod peer;
mod proxy;

use std::collections::VecDeque;
use std::fs;
use std::net::Ipv4Addr;

use crate::support::{self, Home, Node, eventually, peak_memory};
use levada_capability::{Capability, Operation as Right};
use levada_core::{SecretKey, Succession, SystemRandom, UnixTime, wire};
use levada_node::store::Store;
use peer::*;

/// The limit of the node's peak memory, in KiB.
const MOST_MEMORY: u64 = 96 * 1024;

/// A node under attack.
struct Victim<'a> {
    node: Node<'a>,
    address: String,
    at: String,
    open_files: usize,
    /// An identity that the node has not authorised.
    attacker: SecretKey,
}

impl<'a> Victim<'a> {
    fn up(home: &'a Home) -> Self {
        let node = home.up("--name well");
        home.run("run well/clock").ok();
        let address = node.address();
        let at = node.at();
        let attacker = SecretKey::generate(&SystemRandom).unwrap();
        let mut victim = Self { node, address, at, open_files: 0, attacker };
        // The baseline is a node that has served a connection and is idle.
        Peer::open(&victim.address, &victim.attacker).close();
        eventually("the node is idle", || victim.connections() == 0);
        victim.open_files = victim.files();
        victim
    }

    fn open(&self) -> Peer {
        Peer::open(&self.address, &self.attacker)
    }

    fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.node.process())).unwrap().count()
    }

    fn connections(&self) -> u64 {
        self.metric("levada_connections ")
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> u64 {
        let (_, metrics) = self.node.http("/metrics");
        let line = metrics.lines().find(|line| line.starts_with(name));
        line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    fn peak_memory(&self) -> u64 {
        peak_memory(self.node.process())
    }

    /// Asserts that the node has recovered from an attack.
    #[track_caller]
    fn assert_recovered(&self, after: &str) {
        eventually(after, || self.connections() == 0 && self.files() <= self.open_files);
        assert!(!self.node.log().contains("panicked"), "{after}: {}", self.node.log());
        assert!(self.peak_memory() < MOST_MEMORY, "{after}: {} KiB", self.peak_memory());
        self.node.home.args(["run", &format!("{}/clock", self.at)]).ok();
    }
}

/// Makes the n-th frames of a flood.
type Frames = Box<dyn Fn(u64) -> Vec<u8>>;

/// Each violation, and the text of the error that the node sends.
#[test]
fn protocol_violations_end_the_connection_with_a_reason() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let opened = data(1, 0, b"");
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("an unknown frame", vec![0x0f, 1, 2, 3], "unknown"),
        ("an unknown flag", vec![0x81, 1, 0], "unknown"),
        ("no frame at all", vec![0; 100], "unknown"),
        ("an oversized frame", [opened.clone(), data_of_length(1, 1 << 40)].concat(), "cut off"),
        ("a long close reason", close(&[b'x'; 1000]), "broke the protocol"),
        ("a close reason that is not UTF-8", close(&[0xff; 10]), "broke the protocol"),
        ("a stream out of order", data(5, 0, b""), "not open"),
        ("a stream of the node's", data(2, 0, b""), "not open"),
        ("stream 0", data(0, 0, b""), "not open"),
        ("a stream that begins with data", data(1, END, b"x"), "not open"),
        ("an empty data frame", [opened.clone(), opened.clone()].concat(), "nothing in it"),
        (
            "data behind the end",
            [opened.clone(), data(1, FIN, b""), data(1, END, b"x")].concat(),
            "behind the end",
        ),
        (
            "an end within a message",
            [opened.clone(), data(1, 0, b"x"), data(1, FIN, b"")].concat(),
            "within a message",
        ),
        ("a window of no stream", window(9, 1), "not open"),
        ("a reset of no stream", reset(9), "not open"),
        ("a PONG for nothing", [&[5][..], &[7; 8]].concat(), "PONG"),
        ("a second HELLO", HELLO.to_vec(), "second HELLO"),
    ];
    for (name, frames, words) in cases {
        let mut peer = victim.open();
        // The node may close the connection before everything is sent.
        let sent = peer.send(frames);
        assert!(peer.receives(words.as_bytes()), "{name}: {sent:?}");
        peer.expect_close();
        victim.assert_recovered(name);
    }
    for (name, first) in [
        ("no HELLO", ping(1)),
        ("another version", vec![6, 9, 9, 0]),
        ("a block of 1", vec![6, 1, 1, 1]),
    ] {
        let mut peer = Peer::connected(&victim.address, &victim.attacker);
        peer.send(&first).unwrap();
        peer.expect_close();
        victim.assert_recovered(name);
    }
}

/// Invalid records after a valid handshake.
#[test]
fn broken_records_end_the_connection() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let record = |kind: u8, length: u16, bytes: usize| {
        [&[kind, 3, 3][..], &length.to_be_bytes(), &vec![5; bytes]].concat()
    };
    for (name, bytes) in [
        ("a forged record", record(23, 100, 100)),
        ("an oversized record", record(23, 16384 + 257, 0)),
        ("an empty record", record(23, 0, 0)),
        ("a record of an unknown type", record(99, 10, 10)),
        ("an alert in the clear", record(21, 2, 2)),
        ("a handshake message in the clear", record(22, 4, 4)),
    ] {
        let mut peer = victim.open();
        assert!(peer.is_served());
        peer.raw(&bytes).unwrap();
        peer.expect_close();
        victim.assert_recovered(name);
    }
    // Connections that end in the middle of a record, a message or an operation.
    for (name, frames, raw) in [
        ("half a record", vec![], record(23, 1000, 500)),
        ("half a message", [data(1, 0, b""), data(1, 0, &[1; 5000])].concat(), vec![]),
        ("a stream without an operation", data(1, 0, b""), vec![]),
    ] {
        let mut peer = victim.open();
        peer.send(&frames).unwrap();
        assert!(peer.is_served());
        peer.raw(&raw).unwrap();
        peer.close();
        victim.assert_recovered(name);
    }
}

/// An undecodable operation ends its stream, but not the connection.
#[test]
fn an_undecodable_operation_is_answered() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let mut peer = victim.open();
    let many: Vec<u8> = (0..16_000_u32).map(|n| ((n * n) >> 5) as u8).collect();
    for (n, garbage) in
        [&b""[..], b"\xff", b"GET / HTTP/1.1\r\n\r\n", &many].into_iter().enumerate()
    {
        let mut peer = victim.open();
        peer.send(&operation(1, garbage)).unwrap();
        assert!(peer.receives(b"unknown operation"), "garbage {n}");
        assert!(peer.is_served());
    }
    // An operation may have 256 KiB: the node resets the stream before it has read 1 MiB.
    peer.send(&data(1, 0, b"")).unwrap();
    for _ in 0..70 {
        let _ = peer.send(&data(1, 0, &[0; 15_000]));
    }
    // If the peer exceeds its credit, the node closes the connection instead.
    let _reset = peer.receives(&[3, 1]);
    drop(peer);
    victim.assert_recovered("no operations");
}

/// Floods of frames that are valid one by one. The node serves each peer to the end, or closes its
/// connection.
#[test]
fn floods_neither_exhaust_memory_nor_stop_the_node() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let query = wire::Query { service: String::new() };
    let query = wire::encode(&wire::Operation::from(wire::operation::Operation::Query(query)));
    let stream = |n: u64| 2 * n + 1;
    let opened = data(1, 0, b"");
    let count = if support::in_full() { 1_000_000 } else { 100_000 };
    let floods: [(&str, Frames); 10] = [
        ("PING", Box::new(ping)),
        ("empty messages", Box::new(|_| data(1, END, b""))),
        ("one byte at a time", Box::new(|_| data(1, 0, b"x"))),
        ("WINDOW of the connection", Box::new(|n| window(0, n))),
        ("WINDOW of a stream", Box::new(|n| window(1, 1 << (n % 62)))),
        ("RESET of one stream", Box::new(|_| reset(1))),
        ("streams", Box::new(move |n| data(stream(n + 1), 0, b""))),
        (
            "streams opened and reset",
            Box::new(move |n| [data(stream(n + 1), 0, b""), reset(stream(n + 1))].concat()),
        ),
        (
            "streams ended at once",
            Box::new(move |n| {
                [data(stream(n + 1), 0, b""), data(stream(n + 1), FIN, b"")].concat()
            }),
        ),
        ("operations", Box::new(move |n| operation(stream(n + 1), &query))),
    ];
    for (name, frames) in floods {
        let mut peer = victim.open();
        peer.send(&opened).unwrap();
        for chunk in 0..count / 200 {
            let frames: Vec<u8> = (0..200).flat_map(|n| frames(chunk * 200 + n)).collect();
            if peer.send(&frames).is_err() {
                break;
            }
        }
        let served = peer.is_served();
        let cut = ["streams", "operations"].contains(&name);
        assert!(!(cut && served), "{name} were not stopped");
        drop(peer);
        victim.assert_recovered(name);
    }
}

/// Many records with one small frame each must not accumulate in memory.
#[test]
fn a_flood_of_tiny_records_is_served() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let mut peer = victim.open();
    let pings: Vec<_> = (0..20_000).map(ping).collect();
    peer.send_each(&pings).unwrap();
    assert!(peer.is_served());
    drop(peer);
    victim.assert_recovered("tiny records");
}

/// An authorised peer that sends thousands of operations, one after the other, is served every
/// time.
#[test]
fn thousands_of_sequential_operations_are_served() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let mut peer = Peer::open(&victim.address, &own_key(&home));
    peer.send(&window(0, 1 << 40)).unwrap();
    for n in 0..3000 {
        let stream = 2 * n + 1;
        let frames =
            [data(stream, 0, b""), data(stream, END, &[0xff; 7]), data(stream, FIN, b""), ping(n)];
        peer.send(&frames.concat()).unwrap();
        assert!(peer.receives(&[&[5][..], &n.to_be_bytes()].concat()), "{n}");
    }
    assert!(peer.is_served());
    drop(peer);
    victim.assert_recovered("thousands of operations");
}

/// The key of a home.
fn own_key(home: &Home) -> SecretKey {
    levada_home::Home::at(home.path()).unwrap().key().unwrap()
}

/// An unauthorised peer exceeds the rate of its source: its operations are delayed or refused, the
/// log stays short, and an authorised user at the same address is served.
#[test]
fn operations_of_unauthorised_peers_are_rate_limited() {
    let home = Home::new();
    fs::write(home.path().join("config.toml"), "[limits]\noperations = 1\n").unwrap();
    let victim = Victim::up(&home);
    let query = wire::Query { service: "clock".into() };
    let query = wire::encode(&wire::Operation::from(wire::operation::Operation::Query(query)));
    // The node takes eight operations of each connection at a time, and serves one per second.
    // Within the 10 s that an operation may wait, it cannot serve all of them.
    let mut peers = [victim.open(), victim.open()];
    for peer in &mut peers {
        let queries = (0..20)
            .map(|n| 2 * n + 1)
            .flat_map(|stream| [operation(stream, &query), data(stream, FIN, b"")].concat());
        peer.send(&queries.collect::<Vec<_>>()).unwrap();
    }
    eventually("some are refused", || victim.metric("levada_operations_limited_total ") > 0);
    home.args(["run", &format!("{}/clock", victim.at)]).ok();
    let lines = victim.node.log().matches("operation=").count();
    assert!(lines < 20, "{lines} lines of 40 operations: {}", victim.node.log());
    drop(peers);
    victim.assert_recovered("many operations without a right");
}

/// More sources than permitted connections: each new connection evicts the oldest one, and has time
/// to prove a right.
#[test]
fn the_oldest_unauthorised_connection_is_evicted() {
    const CONNECTIONS: usize = 3;
    let query = wire::Query { service: "clock".into() };
    let query = wire::encode(&wire::Operation::from(wire::operation::Operation::Query(query)));
    let home = Home::new();
    fs::write(home.path().join("config.toml"), format!("[limits]\nconnections = {CONNECTIONS}\n"))
        .unwrap();
    let victim = Victim::up(&home);
    let mut peers = VecDeque::new();
    for number in 1..=12 {
        let source = Ipv4Addr::new(127, 0, 3, number);
        let mut peer = Peer::open_from(source, &victim.address, &victim.attacker);
        // Handshakes run side by side; an answer shows that this connection has its place before
        // the next one comes.
        peer.send(&[operation(1, &query), data(1, FIN, b"")].concat()).unwrap();
        assert!(peer.receives(b"clock"), "connection {number}");
        peers.push_back(peer);
        if peers.len() > CONNECTIONS {
            peers.pop_front().unwrap().expect_close();
        }
        for peer in &mut peers {
            assert!(peer.is_served(), "after connection {number}");
        }
    }
    drop(peers);
    victim.assert_recovered("more connections than permitted");
}

/// A succession of an unknown key is refused and not stored.
#[test]
fn successions_of_unknown_keys_are_not_kept() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let mut peer = victim.open();
    let key = || SecretKey::generate(&SystemRandom).unwrap();
    for n in 0..3 {
        let succession = Succession::sign(&key(), &key().identity(), UnixTime(n));
        let told = wire::operation::Operation::Succession(succession.to_wire());
        peer.send(&operation(2 * n + 1, &wire::encode(&wire::Operation::from(told)))).unwrap();
        assert!(peer.receives(b"the old key is unknown to this node"), "{n}");
    }
    // A guest cannot transfer its sessions and their limits to the owner.
    let guest = Home::new();
    victim.node.welcome(&guest, "well");
    let mut peer = Peer::open(&victim.address, &own_key(&guest));
    let owner = own_key(&home).identity();
    let succession = Succession::sign(&own_key(&guest), &owner, UnixTime(1));
    let told = wire::operation::Operation::Succession(succession.to_wire());
    peer.send(&operation(1, &wire::encode(&wire::Operation::from(told)))).unwrap();
    assert!(peer.receives(b"not the one that presents the statement"));
    drop(peer);
    victim.assert_recovered("successions of unknown keys");
    home.run("stop").ok();
    let store = Store::open(&home.path().join("state/node.db"));
    let store = store.or_else(|_| Store::open(&home.path().join("node.db"))).unwrap();
    assert_eq!(store.rotations().unwrap(), []);
}

/// A peer that starts `echo` and never reads the answers can send no more than its credit.
#[test]
fn a_peer_that_never_reads_is_limited_by_its_credit() {
    let home = Home::new();
    let victim = Victim::up(&home);
    // The node's own identity may start any service.
    let key = own_key(&home);
    let capability = home.run("request well/echo").ok();
    let capability = Capability::from_text(&capability).unwrap();
    let mut peer = Peer::open(&victim.address, &key);
    let presentation = capability.present(&peer.exporter(), Right::Connect);
    let start = wire::operation::Operation::Connect(presentation);
    peer.send(&operation(1, &wire::encode(&wire::Operation::from(start)))).unwrap();
    assert!(peer.receives(capability.session().as_bytes()), "the session has not started");

    peer.send(&window(0, 1 << 50)).unwrap();
    peer.send(&window(1, 1 << 50)).unwrap();
    // Tag 0: data. One message, longer than all windows and buffers on the path.
    for _ in 0..8000 {
        if peer.send(&data(1, 0, &[0; 16_000])).is_err() {
            break;
        }
    }
    assert!(!peer.is_served());
    drop(peer);
    victim.assert_recovered("one that never reads");

    // Many peers that send queries, read no answers, and close.
    let query = wire::Query { service: String::new() };
    let query = wire::encode(&wire::Operation::from(wire::operation::Operation::Query(query)));
    let peers: Vec<Peer> = (0..20)
        .map(|_| {
            let mut peer = victim.open();
            let queries = (0..200).flat_map(|n| operation(2 * n + 1, &query));
            peer.send(&queries.collect::<Vec<_>>()).unwrap();
            peer
        })
        .collect();
    eventually("all are connected", || victim.connections() == 20);
    home.args(["run", &format!("{}/clock", victim.at)]).ok();
    drop(peers);
    victim.assert_recovered("many that never read");
}

/// A peer that stops at any point of the handshake is disconnected after a timeout.
#[test]
fn a_stalled_handshake_is_closed() {
    let home = Home::new();
    let victim = Victim::up(&home);
    let silent = Peer::tcp_only(&victim.address, &victim.attacker);
    let mut peers = vec![silent];
    for part in [1, 5, 500, usize::MAX] {
        let mut peer = Peer::tcp_only(&victim.address, &victim.attacker);
        let flight = peer.flight();
        peer.raw(&flight[..part.min(flight.len())]).unwrap();
        peers.push(peer);
    }
    // After the handshake and before HELLO.
    peers.push(Peer::connected(&victim.address, &victim.attacker));
    home.args(["run", &format!("{}/clock", victim.at)]).ok();
    // All timeouts run at the same time.
    peers.into_iter().for_each(Peer::expect_close);
    victim.assert_recovered("stopped handshakes");
}
