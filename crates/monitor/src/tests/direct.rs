//! Listeners that take connections by queues, and their clients.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use levada_ring::Pool;
use levada_ring::queue::{LISTENERS, NAMES};
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
    client.send(Request::Find { question: 9 }, &[connection.as_fd()]);
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
    let Response::Route { question: 9, peer, listener: 7, port, pool: true, bells: true } =
        response
    else {
        panic!("{response:?}");
    };
    let (response, mut of_server) = server.receive();
    let Response::Pool { peer: own, port: same, bells: true } = response else {
        panic!("{response:?}");
    };
    assert!(peer != own && port == same);
    for descriptors in [&of_client, &of_server] {
        assert_eq!(descriptors.len(), 2 + WAKING);
        assert!(Pool::open(&descriptors[0]).is_ok());
    }
    // Another listener of the same process: both have the pair already.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, _far) = connected(&other);
    assert!(announced(&server, &other, 8));
    let (response, descriptors) = found(&client, &near);
    let again = Response::Route { question: 9, peer, listener: 8, port, pool: false, bells: false };
    assert_eq!(response, again);
    assert!(descriptors.is_empty());
    // The monitor has no end of the line.
    assert!(!is_down(&of_client[1]));
    drop(of_server.remove(1));
    assert!(is_down(&of_client[1]));
}

/// A listener takes the place of one of the same process that has ended.
#[test]
fn a_listener_replaces_the_one_before_in_its_place() {
    let monitor = Running::start(PATIENT);
    let [server, client] = [1, 2].map(|run| monitor.process(run));
    let [first, second] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    assert!(!announced(&server, &first, NAMES), "it is no name");
    assert!(announced(&server, &first, 3));
    assert!(announced(&server, &second, 3 + LISTENERS as u32));
    let (near, _far) = connected(&first);
    assert_eq!(found(&client, &near).0, Response::NoRoute { question: 9 });
    let (near, _far) = connected(&second);
    assert!(matches!(found(&client, &near).0, Response::Route { .. }));
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
    assert!(matches!(found(&client, &near).0, Response::Route { listener: 3, .. }));
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
