use levada_ring::queue::Open;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;

const LISTENER: Open = Open { name: 3, mark: 9, backlog: 2 };

/// A client and a server, as the monitor introduces them, with an open listener.
fn introduced() -> [&'static Pair; 2] {
    process::take_over();
    let file = Pool::create().unwrap();
    let flags = SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let sides = [(2, Side::Connector, one), (1, Side::Acceptor, other)];
    let pairs = sides.map(|(peer, side, line)| {
        let pair = Pair::open((peer, side), 61_056, &file, None).unwrap();
        assert!(pair.keep(file.as_fd(), line));
        pair
    });
    pairs[1].queue().open(LISTENER);
    pairs
}

fn connected(client: &Pair) -> (u8, u64) {
    match client.connect((2, LISTENER.name), false) {
        Made::Connection(place, LISTENER) => place,
        _ => panic!("there is no connection"),
    }
}

#[test]
fn a_segment_is_used_again_when_both_processes_have_closed_it() {
    let [client, server] = introduced();
    for round in 1..=3 {
        let (number, generation) = connected(client);
        assert_eq!((number, generation), (0, round));
        assert!(server.has_waiting(LISTENER.name) && !server.has_waiting(4));
        assert_eq!(server.take(LISTENER.name), Some((number, generation)));
        assert!(server.take(LISTENER.name).is_none());
        client.end(number, generation, true);
        server.end(number, generation, true);
    }
}

#[test]
fn as_many_wait_as_the_backlog_says_and_a_closed_listener_has_none() {
    let [client, server] = introduced();
    connected(client);
    connected(client);
    assert!(matches!(client.connect((2, LISTENER.name), false), Made::NoRoom));
    server.queue().close(LISTENER.name);
    assert!(matches!(client.connect((2, LISTENER.name), false), Made::Closed));
    assert!(server.take(LISTENER.name).is_some() && server.take(LISTENER.name).is_some());
}

#[test]
fn a_client_that_lets_a_connection_wait_twice_has_one() {
    let [client, server] = introduced();
    let place = connected(client);
    assert_eq!(server.take(LISTENER.name), Some(place));
    client.queue().push(LISTENER.name, place, 7);
    assert!(!server.has_waiting(LISTENER.name) && server.take(LISTENER.name).is_none());
}

#[test]
fn a_server_that_has_ended_gets_no_connection() {
    let [client, server] = introduced();
    assert!(!client.is_down() && !client.retire(|| false));
    private::forget(&server.line);
    assert!(matches!(client.connect((2, LISTENER.name), false), Made::Closed));
    assert!(!server.has_waiting(LISTENER.name), "it was undone");
    assert!(client.is_down() && client.retire(|| false));
    assert!(matches!(client.connect((2, LISTENER.name), false), Made::Closed));
}

#[test]
fn what_a_client_has_sent_is_read_after_its_end() {
    let [client, server] = introduced();
    let (number, generation) = connected(client);
    private::forget(&client.line);
    assert!(server.is_down() && !server.retire(|| true), "a connection waits");
    assert_eq!(server.take(LISTENER.name), Some((number, generation)));
    assert!(!server.retire(|| false), "a connection is in it");
    server.end(number, generation, true);
    assert!(server.retire(|| false));
}

#[test]
fn a_pair_becomes_that_of_another_process_and_who_has_found_it_before_does_not_connect() {
    let [client, server] = introduced();
    let (number, generation) = connected(client);
    private::forget(&server.line);
    client.end(number, generation, true);
    assert!(client.is_down() && client.retire(|| false));
    let file = Pool::create().unwrap();
    let other = Pool::open(&file).unwrap();
    other.queue().open(LISTENER);
    let again = Pair::open((3, Side::Connector), 61_184, &file, Some(client)).unwrap();
    let flags = SocketFlags::CLOEXEC;
    let (line, _end) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    assert!(std::ptr::eq(again, client) && again.keep(file.as_fd(), line) && !again.is_down());
    assert!(matches!(client.connect((2, LISTENER.name), false), Made::Closed));
    assert!(matches!(client.connect((3, LISTENER.name), false), Made::Connection((0, 1), _)));
    assert!(other.queue().first(LISTENER.name, |_| true).is_some());
}
