//! Listeners that take connections by queues, and their clients.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use levada_ring::Pool;
use levada_ring::queue::SLOTS;
use levada_ring::wire::{Request, Response, WAKING};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

use super::support::{PATIENT, Process, Running, connected};

/// Returns true if the monitor tells clients of a listener.
fn announced(server: &Process, listener: impl AsFd, name: u32) -> bool {
    server.send(Request::Listen { question: 5, listener: name }, &[listener.as_fd()]);
    let Response::Listening { question: 5, is_known } = server.response() else {
        panic!("no answer")
    };
    is_known
}

/// Returns true if no process has the other end of a line.
fn is_down(line: &OwnedFd) -> bool {
    let mut entry = [PollFd::new(line, PollFlags::empty())];
    poll(&mut entry, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    entry[0].revents().contains(PollFlags::HUP)
}

fn found(client: &Process, connection: impl AsFd) -> (Response, Vec<OwnedFd>) {
    client.send(Request::Find { question: 9, again: false }, &[connection.as_fd()]);
    client.receive()
}

#[test]
fn a_client_and_a_server_get_a_pool_and_a_line() {
    let monitor = Running::start(PATIENT);
    let [server, client] = [1, 2].map(|run| monitor.process(run));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, _far) = connected(&listener);
    assert_eq!(found(&client, &near).0, Response::NoRoute { question: 9 });
    assert!(announced(&server, &listener, 7));
    let (response, of_client) = found(&client, &near);
    let Response::Route { question: 9, peer, listener: number, slot: 0, port, pool: true, bells } =
        response
    else {
        panic!("{response:?}");
    };
    assert!(bells);
    let (response, mut of_server) = server.receive();
    let Response::Pool { peer: own, listener: 7, slot: 0, port: same, bells: true } = response
    else {
        panic!("{response:?}");
    };
    assert!(peer != own && port == same);
    for descriptors in [&of_client, &of_server] {
        assert_eq!(descriptors.len(), 2 + WAKING);
        assert!(Pool::open(&descriptors[0]).is_ok());
    }
    // The client has the pool already, and gets another one if it asks for that.
    let (response, descriptors) = found(&client, &near);
    let known = Response::Route {
        question: 9,
        peer: 0,
        listener: number,
        slot: 0,
        port,
        pool: false,
        bells: false,
    };
    assert_eq!(response, known);
    assert!(descriptors.is_empty());
    client.send(Request::Find { question: 9, again: true }, &[near.as_fd()]);
    let (response, descriptors) = client.receive();
    let bells = false;
    let again =
        Response::Route { question: 9, peer, listener: number, slot: 0, port, pool: true, bells };
    assert_eq!((response, descriptors.len()), (again, 2));
    // The monitor has no end of the line.
    assert!(!is_down(&of_client[1]));
    drop(of_server.remove(1));
    assert!(is_down(&of_client[1]));
}

/// Processes that have the same socket take connections together, whenever they say so.
#[test]
fn several_processes_of_a_listener_have_the_pools_of_its_clients() {
    let monitor = Running::start(PATIENT);
    let [one, other, client] = [1, 2, 3].map(|run| monitor.process(run));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, _far) = connected(&listener);
    assert!(announced(&one, &listener, 7));
    let Response::Route { listener: number, peer: first, .. } = found(&client, &near).0 else {
        panic!("no route")
    };
    assert!(matches!(one.receive().0, Response::Pool { listener: 7, slot: 0, .. }));
    // A process that says so later.
    other.send(Request::Listen { question: 5, listener: 1 }, &[listener.as_fd()]);
    let (response, descriptors) = other.receive();
    assert!(matches!(response, Response::Pool { listener: 1, slot: 1, bells: true, .. }));
    assert_eq!(descriptors.len(), 2 + WAKING);
    assert_eq!(other.response(), Response::Listening { question: 5, is_known: true });
    let (response, line) = client.receive();
    let Response::Member { listener, peer: second, slot: 1, bells: true } = response else {
        panic!("{response:?}");
    };
    assert!(listener == number && second != first && line.len() == 1 + WAKING);
    assert!(!is_down(&line[0]));
    drop(descriptors);
    assert!(is_down(&line[0]));
    // A client that comes later.
    let late = monitor.process(4);
    let (response, _) = found(&late, &near);
    assert!(matches!(response, Response::Route { slot: 0, pool: true, .. }), "{response:?}");
    assert!(matches!(late.receive().0, Response::Member { slot: 1, .. }));
    for (process, slot) in [(&one, 0), (&other, 1)] {
        assert!(matches!(process.receive().0, Response::Pool { slot: own, .. } if own == slot));
    }
    // The listener has a route until the last one closes it.
    one.send(Request::Shut { listener: 7 }, &[]);
    one.settle();
    assert!(matches!(found(&late, &near).0, Response::Route { pool: false, .. }));
    assert_eq!(found(&other, &near).0, Response::NoRoute { question: 9 }, "it is its own");
    other.send(Request::Shut { listener: 1 }, &[]);
    other.settle();
    assert_eq!(found(&late, &near).0, Response::NoRoute { question: 9 });
}

#[test]
fn no_slot_is_given_twice() {
    let monitor = Running::start(PATIENT);
    let owner = monitor.process(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(announced(&owner, &listener, 1));
    for run in 1..SLOTS as u64 {
        let server = monitor.process(run);
        assert!(announced(&server, &listener, 1));
    }
    assert!(!announced(&monitor.process(2), &listener, 1));
    // A socket of the same address is another listener.
    let address = listener.local_addr().unwrap();
    drop(listener);
    let next = TcpListener::bind(address).unwrap();
    assert!(announced(&owner, &next, 2));
}

/// Only the process that has a listener ends it.
#[test]
fn a_listener_that_has_ended_has_no_route() {
    let monitor = Running::start(PATIENT);
    let [server, client] = [1, 2].map(|run| monitor.process(run));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, _far) = connected(&listener);
    assert!(announced(&server, &listener, 3));
    client.send(Request::Shut { listener: 3 }, &[]);
    server.send(Request::Shut { listener: 4 }, &[]);
    server.settle();
    assert!(matches!(found(&client, &near).0, Response::Route { pool: true, .. }));
    let _pool = server.receive();
    server.send(Request::Shut { listener: 3 }, &[]);
    server.settle();
    assert_eq!(found(&client, &near).0, Response::NoRoute { question: 9 });
}

#[test]
fn a_process_gets_no_route_to_itself_nor_to_one_that_has_ended() {
    let monitor = Running::start(PATIENT);
    let [server, client] = [1, 2].map(|run| monitor.process(run));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, _far) = connected(&listener);
    assert!(announced(&server, &listener, 0));
    assert_eq!(found(&server, &near).0, Response::NoRoute { question: 9 });
    drop(server);
    client.settle();
    assert_eq!(found(&client, &near).0, Response::NoRoute { question: 9 });
}

#[test]
fn a_connection_that_the_kernel_leads_elsewhere_has_no_route() {
    let monitor = Running::start(PATIENT);
    let [server, client] = [1, 2].map(|run| monitor.process(run));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, far) = connected(&listener);
    assert!(announced(&server, &listener, 0));
    // As after a redirection: no socket has the addresses of the other end.
    rustix::net::sockopt::set_socket_linger(&far, Some(std::time::Duration::ZERO)).unwrap();
    drop(far);
    assert_eq!(found(&client, &near).0, Response::NoRoute { question: 9 });
}

#[test]
fn listeners_whose_connections_depend_on_more_than_their_address_are_refused() {
    let monitor = Running::start(PATIENT);
    let server = monitor.process(1);
    let shared = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_reuseport(&shared, true).unwrap();
    bind(&shared, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    listen(&shared, 5).unwrap();
    assert!(getsockname(&shared).is_ok());
    assert!(!announced(&server, &shared, 1));
    let other_address = TcpListener::bind("127.0.0.2:0").unwrap();
    assert!(!announced(&server, &other_address, 1));
    let (near, _far) = connected(&TcpListener::bind("127.0.0.1:0").unwrap());
    assert!(!announced(&server, &near, 1), "it does not listen");
    let all = TcpListener::bind("[::]:0").unwrap();
    assert!(announced(&server, &all, 1));
}
