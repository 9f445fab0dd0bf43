use levada_ring::queue::Open;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;

const LISTENER: u32 = 2;
const OPEN: Open = Open { mark: 9, backlog: 2 };

fn line() -> [OwnedFd; 2] {
    let flags = SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    [one, other]
}

/// A client and servers that have a listener open, as the monitor introduces them.
fn introduced<const COUNT: usize>() -> (&'static Pair, [&'static Pair; COUNT]) {
    process::take_over();
    let file = Pool::create().unwrap();
    let open = |role| {
        let pair = Pair::open(role, 61_056, &file, None).unwrap();
        pair.keep(file.as_fd());
        pair
    };
    let client = open(Role::Client(LISTENER));
    let servers = std::array::from_fn(|slot| {
        let [near, far] = line();
        let slot = slot as u8 + 3;
        let server = open(Role::Server(7, slot));
        assert!(client.add(slot, u32::from(slot) + 100, near) && server.add(0, 1, far));
        server.let_in(OPEN);
        server
    });
    (client, servers)
}

fn connected(client: &Pair) -> (u8, u64) {
    match client.connect(LISTENER, false) {
        Made::Connection(place) => place,
        _ => panic!("there is no connection"),
    }
}

#[test]
fn a_segment_is_used_again_when_both_processes_have_closed_it() {
    let (client, [server]) = introduced();
    for round in 1..=3 {
        let (number, generation) = connected(client);
        assert_eq!((number, generation), (0, round));
        assert!(server.is_of(7) && !server.is_of(8) && server.has_waiting());
        assert_eq!(client.peer_of((number, generation)), None);
        assert_eq!(server.take(), Some((number, generation)));
        assert_eq!(client.peer_of((number, generation)), Some(103));
        assert_eq!(server.peer_of((number, generation)), Some(1));
        assert!(server.take().is_none());
        client.end(number, generation, true);
        server.end(number, generation, true);
    }
}

#[test]
fn as_many_wait_as_the_backlog_says_and_a_closed_listener_has_none() {
    let (client, [server]) = introduced();
    connected(client);
    connected(client);
    assert!(matches!(client.connect(LISTENER, false), Made::NoRoom));
    server.let_in(Open { backlog: 0, ..OPEN });
    assert!(matches!(client.connect(LISTENER, false), Made::Closed));
    assert!(server.take().is_some() && server.take().is_some());
}

#[test]
fn a_client_that_lets_a_connection_wait_twice_has_one() {
    let (client, [server]) = introduced();
    let place = connected(client);
    assert_eq!(server.take(), Some(place));
    client.queue().push(place, 7);
    assert!(!server.has_waiting() && server.take().is_none());
}

#[test]
fn a_server_that_has_ended_gets_no_connection() {
    let (client, [server]) = introduced();
    assert!(!client.is_down() && !client.retire());
    server.others.clear();
    assert!(matches!(client.connect(LISTENER, false), Made::Closed));
    assert!(!server.has_waiting(), "it was undone");
    assert!(client.is_down() && client.retire());
    assert!(matches!(client.connect(LISTENER, false), Made::Closed));
}

#[test]
fn what_a_client_has_sent_is_read_after_its_end() {
    let (client, [server]) = introduced();
    let (number, generation) = connected(client);
    client.others.clear();
    assert!(server.is_down() && !server.retire(), "a connection waits");
    assert_eq!(server.take(), Some((number, generation)));
    assert!(!server.retire(), "a connection is in it");
    server.end(number, generation, true);
    assert!(server.retire());
}

/// Each process that has the listener takes connections, and has them for itself.
#[test]
fn a_connection_is_lost_with_the_process_that_has_taken_it() {
    let (client, [one, other]) = introduced();
    let first = connected(client);
    let second = connected(client);
    assert_eq!((one.take(), other.take()), (Some(first), Some(second)));
    let third = connected(client);
    assert_eq!(
        [first, second, third].map(|place| client.peer_of(place)),
        [Some(103), Some(104), None]
    );
    other.others.clear();
    assert!(client.may_have_ended() && !client.is_down());
    assert_eq!(
        [first, second, third].map(|place| client.lost(place)),
        [None, Some(End::Closed), None]
    );
    // No process will take it.
    one.close();
    assert_eq!((client.lost(first), client.lost(third)), (None, Some(End::Reset)));
    assert!(one.take().is_none() && matches!(client.connect(LISTENER, false), Made::Closed));
}

#[test]
fn the_pool_of_a_closed_listener_is_retired_once_its_connections_have_ended() {
    let (client, [one, other]) = introduced();
    let (number, generation) = connected(client);
    assert_eq!(one.take(), Some((number, generation)));
    one.close();
    assert!(!client.retire() && !one.retire(), "a connection is in it");
    one.end(number, generation, true);
    client.end(number, generation, true);
    assert!(one.retire() && !client.retire(), "another process has the listener");
    other.close();
    assert!(other.retire() && client.retire());
}

#[test]
fn a_pair_becomes_that_of_another_listener_and_who_has_found_it_before_does_not_connect() {
    let (client, [server]) = introduced();
    let (number, generation) = connected(client);
    server.others.clear();
    client.end(number, generation, true);
    assert!(client.is_down() && client.retire());
    let file = Pool::create().unwrap();
    let other = Pool::open(&file).unwrap();
    other.queue().open(0, OPEN);
    let again = Pair::open(Role::Client(3), 61_184, &file, Some(client)).unwrap();
    let [near, _far] = line();
    assert!(std::ptr::eq(again, client) && again.add(0, 5, near) && !again.is_down());
    assert!(matches!(client.connect(LISTENER, false), Made::Closed));
    assert!(matches!(client.connect(3, false), Made::Connection((0, 1))));
    assert!(other.queue().first(|_| true).is_some());
}
