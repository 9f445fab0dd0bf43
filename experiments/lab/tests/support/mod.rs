//! Helpers of the lab's tests.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use levada_lab::{Backend, Lab, Link, LinkHandle, Node, Options};

pub const MS: fn(u64) -> Duration = Duration::from_millis;

/// Two nodes and the link between them.
pub struct Pair {
    // Fields are dropped in this order; the lab may go first.
    pub lab: Lab,
    pub a: Node,
    pub b: Node,
    pub link: LinkHandle,
}

impl Pair {
    pub fn new(backend: Backend, link: &Link) -> Self {
        let options = Options { backend: Some(backend), ..Options::default() };
        let mut lab = Lab::new(options).unwrap();
        let a = lab.node("a").unwrap();
        let b = lab.node("b").unwrap();
        let link = lab.link(&a, &b, link).unwrap();
        Self { lab, a, b, link }
    }

    /// A socket of `a` that sends to one of `b`.
    pub fn sockets(&self) -> (UdpSocket, UdpSocket) {
        let there = self.b.run(|| UdpSocket::bind((self.b.address(), 0))).unwrap().unwrap();
        let here = self.a.run(|| UdpSocket::bind((self.a.address(), 0))).unwrap().unwrap();
        here.connect(there.local_addr().unwrap()).unwrap();
        (here, there)
    }
}

/// A received packet: its number and its one-way time.
pub type Arrival = (u32, Duration);

/// Sends `packets` packets of `length` bytes (UDP payload, at least 4) with pauses. Returns the
/// received ones, in order.
pub fn arrivals(pair: &Pair, packets: u32, length: usize, pause: Duration) -> Vec<Arrival> {
    let (here, there) = pair.sockets();
    there.set_read_timeout(Some(MS(500))).unwrap();
    let mut sent = Vec::new();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&there));
        let mut packet = vec![0; length];
        for number in 0..packets {
            packet[..4].copy_from_slice(&number.to_be_bytes());
            sent.push(Instant::now());
            here.send(&packet).unwrap();
            std::thread::sleep(pause);
        }
        let received = receiver.join().unwrap();
        received.into_iter().map(|(number, at)| (number, at - sent[number as usize])).collect()
    })
}

/// Numbers and times of received packets, until the socket's time-out.
fn receive(socket: &UdpSocket) -> Vec<(u32, Instant)> {
    let mut packet = [0; 2048];
    let mut received = Vec::new();
    while let Ok(length) = socket.recv(&mut packet) {
        assert!(length >= 4);
        received.push((u32::from_be_bytes(packet[..4].try_into().unwrap()), Instant::now()));
    }
    received
}
