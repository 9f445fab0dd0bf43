//! The record sizes that an observer sees with block framing.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::{Home, Node, eventually};

const SERVICE: &str = r#"
name = "sh"
type = "exec"
framing = ["auto", "block:512"]
[[command]]
program = "cat"
[[command]]
program = "sh"
args = '[\s\S]*'
"#;

/// The record type of encrypted records (RFC 8446 section 5.2).
const ENCRYPTED: u8 = 23;
/// A record's header: type, version, length.
const HEADER: usize = 5;
/// More records than a handshake and its tickets need in one direction.
const HANDSHAKE: usize = 8;

/// The bytes of one connection, in both directions.
#[derive(Default)]
struct Seen {
    from_client: Vec<u8>,
    from_node: Vec<u8>,
    /// Directions that have ended.
    ended: u8,
}

/// A proxy between client and node that records all bytes.
struct Observer {
    address: String,
    connections: Arc<Mutex<Vec<Arc<Mutex<Seen>>>>>,
}

impl Observer {
    fn before(node: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connections = Arc::<Mutex<Vec<Arc<Mutex<Seen>>>>>::default();
        let list = connections.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let seen = Arc::<Mutex<Seen>>::default();
                list.lock().unwrap().push(seen.clone());
                pass_on(client.unwrap(), TcpStream::connect(&node).unwrap(), seen);
            }
        });
        Self { address, connections }
    }

    /// The records of each connection, of the client and of the node, once all of them have ended.
    fn records(&self) -> Vec<[Vec<Record>; 2]> {
        eventually("the connections have ended", || {
            let connections = self.connections.lock().unwrap();
            connections.iter().all(|seen| seen.lock().unwrap().ended == 2)
        });
        let connections = self.connections.lock().unwrap();
        let both = connections.iter().map(|seen| {
            let seen = seen.lock().unwrap();
            [records(&seen.from_client), records(&seen.from_node)]
        });
        both.collect()
    }
}

fn pass_on(client: TcpStream, node: TcpStream, seen: Arc<Mutex<Seen>>) {
    let client_again = client.try_clone().unwrap();
    let node_again = node.try_clone().unwrap();
    let seen_again = seen.clone();
    std::thread::spawn(move || copy(client, node, &seen, |seen| &mut seen.from_client));
    std::thread::spawn(move || {
        copy(node_again, client_again, &seen_again, |seen| &mut seen.from_node)
    });
}

fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    seen: &Mutex<Seen>,
    direction: fn(&mut Seen) -> &mut Vec<u8>,
) {
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        direction(&mut seen.lock().unwrap()).extend_from_slice(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    seen.lock().unwrap().ended += 1;
}

/// Type and size on the wire, header included.
type Record = (u8, usize);

fn records(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let size = HEADER + usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        records.push((bytes[0], size));
        bytes = &bytes[size..];
    }
    records
}

/// Asserts that all records after those of the handshake are `size` long: their number.
#[track_caller]
fn assert_one_size(records: &[Record], size: usize) -> usize {
    let first = records.iter().position(|record| *record == (ENCRYPTED, size)).unwrap();
    assert!(first <= HANDSHAKE, "{records:?}");
    assert!(records[first..].iter().all(|record| *record == (ENCRYPTED, size)), "{records:?}");
    records.len() - first
}

fn serve(home: &Home) -> (String, Observer) {
    let identity = home.identity();
    let address = home.json("status")["listening"][0].as_str().unwrap().to_owned();
    let observer = Observer::before(address);
    (format!("{identity}@{}", observer.address), observer)
}

fn up<'a>(home: &'a Home, alice: &Home) -> Node<'a> {
    let file = home.path().join("service.toml");
    fs::write(&file, SERVICE).unwrap();
    home.up(&format!("--service {} --allow {}", file.display(), alice.identity()))
}

#[test]
fn block_framing_sends_records_of_one_size_on_a_dedicated_connection() {
    let home = Home::new();
    let alice = Home::new();
    let _node = up(&home, &alice);
    let (place, observer) = serve(&home);
    let input = vec![b'x'; 100_000];
    let line = format!("run {place}/sh --framing block:512 -- cat");
    assert_eq!(alice.with_input(&line, &input).ok().into_bytes(), input);
    let records = observer.records();
    // One connection carries operations, and one the session, whose framing differs.
    assert_eq!(records.len(), 2, "{records:?}");
    let [operations, session] = [&records[0], &records[1]];
    for direction in session {
        assert!(assert_one_size(direction, 512) >= input.len() / 512);
    }
    assert!(operations[0].iter().any(|record| record.1 != 512), "{operations:?}");
}

#[test]
fn block_framing_hides_exit_codes_and_errors() {
    let home = Home::new();
    let alice = Home::new();
    let _node = up(&home, &alice);
    let (place, observer) = serve(&home);
    for text in ["exit 7", "echo some words >&2; exit 7", "kill -9 $$"] {
        let place = format!("{place}/sh");
        let ran = alice.args(["run", &place, "--framing", "block:512", "--", "sh", "-c", text]);
        assert!(matches!(ran.code, 7 | 137), "{}", ran.stderr);
    }
    // The second and the third connection may be resumed ones.
    for [of_client, of_node] in observer.records().iter().skip(1).step_by(2) {
        assert!(assert_one_size(of_client, 512) >= 1);
        assert!(assert_one_size(of_node, 512) >= 1);
    }
}

#[test]
fn only_configured_framings_are_granted_and_a_capability_keeps_its_framing() {
    let home = Home::new();
    let alice = Home::new();
    let _node = up(&home, &alice);
    let (place, observer) = serve(&home);
    alice.run(&format!("request {place}/sh --framing block:513 -- cat")).denied("block:513");
    alice.run(&format!("request {place}/clock --framing block:512")).denied("block:512");
    // The framing of the request applies to every start.
    let capability = alice.run(&format!("request {place}/sh --framing block:512 -- cat")).ok();
    let before = observer.records().len();
    assert_eq!(alice.with_input(&format!("connect {capability}"), b"words").ok(), "words");
    let records = observer.records();
    assert_eq!(records.len(), before + 1, "one connection is enough");
    for direction in &records[before] {
        assert!(assert_one_size(direction, 512) >= 1);
    }
    // By default, a session has the first framing of the service.
    let shared = observer.records().len();
    alice.with_input(&format!("run {place}/sh -- cat"), b"words").ok();
    assert_eq!(observer.records().len(), shared + 1);
}
