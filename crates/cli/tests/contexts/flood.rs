//! First flights that are never finished, at a middlebox and at a node, while sessions open.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::{Parties, curl};
use crate::support::{eventually, own_loopback};

/// Connections of one address with a PATH that never ends. One that is closed is opened again.
struct Flood {
    stop: Arc<AtomicBool>,
    /// How often the other end has closed one.
    closed: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn at(target: &str, count: usize) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let closed = Arc::<AtomicUsize>::default();
        let stopped = stop.clone();
        let counter = closed.clone();
        let target: SocketAddrV4 = target.parse().unwrap();
        let from = SocketAddrV4::new(own_loopback().parse().unwrap(), 0);
        let thread = thread::spawn(move || {
            let mut streams: Vec<_> = (0..count).map(|_| open(from, target)).collect();
            while !stopped.load(Ordering::SeqCst) {
                for stream in streams.iter_mut().filter(|stream| is_closed(stream.as_ref())) {
                    counter.fetch_add(1, Ordering::SeqCst);
                    *stream = open(from, target);
                }
                // Bounds the rate of the attack.
                thread::sleep(Duration::from_millis(50));
            }
        });
        Self { stop, closed, thread: Some(thread) }
    }

    fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}

/// The header of a PATH of 1000 bytes, and the first of them.
fn open(from: SocketAddrV4, target: SocketAddrV4) -> Option<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
    bind(&socket, &from).ok()?;
    connect(&socket, &target).ok()?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(&[0x40, 3, 3, 0x03, 0xe8, 1, 1]).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

fn is_closed(stream: Option<&TcpStream>) -> bool {
    let is_open = |mut stream: &TcpStream| {
        let read = stream.read(&mut [0; 64]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    !stream.is_some_and(is_open)
}

#[test]
fn sessions_open_beside_first_flights_that_never_end() {
    let parties = Parties::new();
    let (http, [first, second], node) = parties.run();
    let floods = [first.host_port(), second.host_port(), &node.address()]
        .map(|target| Flood::at(target, 300));
    // Each party has 256 unfinished handshakes.
    eventually("each party refuses some", || floods.iter().all(|flood| flood.closed() >= 44));
    let target = format!("{}@{}/web", parties.node.identity(), node.address());
    let vias = [
        format!("{}:request-head=r", first.address),
        format!("{}:response-head=rw", second.address),
    ];
    let args = ["http", "--via", &vias[0], "--via", &vias[1], &target];
    for session in [&http, &super::Service::start(&parties.client, &args)] {
        for _ in 0..3 {
            assert_eq!(curl(&[&session.address]), "the page", "{}", session.log());
        }
    }
    assert!(floods.iter().all(|flood| flood.closed() >= 44));
}
