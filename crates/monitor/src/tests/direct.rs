//! Listeners with queues, and their clients.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use levada_ring::wire::{Request, Response, WAKING};
use levada_ring::{Pool, Queue};
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

use super::support::{PATIENT, Process, Running, connected};

/// A listener with an open queue, and whether the monitor gives it to clients.
fn announced(server: &Process, listener: impl AsFd) -> (Queue, bool) {
    let (file, queue) = Queue::create().unwrap();
    queue.open(5, 0);
    server.send(Request::Listen { question: 5 }, &[listener.as_fd(), file.as_fd()]);
    let Response::Listening { question: 5, is_known } = server.response() else {
        panic!("no answer")
    };
    (queue, is_known)
}

fn found(client: &Process, connection: impl AsFd) -> (Response, Vec<OwnedFd>) {
    client.send(Request::Find { question: 9 }, &[connection.as_fd()]);
    client.receive()
}

#[test]
fn a_client_gets_the_queue_of_the_listener_that_it_is_connected_to() {
    let monitor = Running::start(PATIENT);
    let [server, client] = [1, 2].map(|run| monitor.process(run));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, _far) = connected(&listener);
    assert_eq!(found(&client, &near).0, Response::NoRoute { question: 9 });
    let (queue, is_known) = announced(&server, &listener);
    assert!(is_known);
    let (response, descriptors) = found(&client, &near);
    let Response::Route { question: 9, peer, own, port, pool: true, bells: true } = response else {
        panic!("{response:?}");
    };
    assert_eq!(descriptors.len(), 3 + WAKING);
    assert!(Queue::open(&descriptors[0]).unwrap().is_open());
    assert!(Pool::open(&descriptors[1]).is_ok());
    let (response, descriptors) = server.receive();
    assert_eq!(response, Response::Pool { peer: own, port, bells: true });
    assert_eq!(descriptors.len(), 2 + WAKING);
    assert_ne!(peer, own);
    // Another listener of the same process: both have the pool already.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, _far) = connected(&other);
    let (_queue, _) = announced(&server, &other);
    let (response, descriptors) = found(&client, &near);
    let again = Response::Route { question: 9, peer, own, port, pool: false, bells: false };
    assert_eq!(response, again);
    assert_eq!(descriptors.len(), 1);
    queue.close();
    let (near, _far) = connected(&listener);
    assert_eq!(found(&client, &near).0, Response::NoRoute { question: 9 });
}

#[test]
fn a_process_gets_no_route_to_itself_nor_to_one_that_has_ended() {
    let monitor = Running::start(PATIENT);
    let [server, client] = [1, 2].map(|run| monitor.process(run));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, _far) = connected(&listener);
    let (_queue, is_known) = announced(&server, &listener);
    assert!(is_known);
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
    let (_queue, is_known) = announced(&server, &listener);
    assert!(is_known);
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
    assert!(!announced(&server, &shared).1);
    let other_address = TcpListener::bind("127.0.0.2:0").unwrap();
    assert!(!announced(&server, &other_address).1);
    let (near, _far) = connected(&TcpListener::bind("127.0.0.1:0").unwrap());
    assert!(!announced(&server, &near).1, "it does not listen");
    let all = TcpListener::bind("[::]:0").unwrap();
    assert!(announced(&server, &all).1);
}
