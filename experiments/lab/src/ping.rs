//! The round trip between two nodes, by an echo over UDP of our own.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{LabError, Node};

/// Bytes of a packet with its IP and UDP headers.
pub(crate) const LENGTH: u64 = 36;
const PACKETS: usize = 31;
const GAP: Duration = Duration::from_millis(5);
/// How often the echo looks whether it is still wanted.
const GLANCE: Duration = Duration::from_millis(50);

/// The median of the round trips of a few dozen packets. `expected` bounds how long they are waited for: a second more than twice
/// that. Packets that are lost do not count.
pub(crate) fn median(a: &Node, b: &Node, expected: Duration) -> Result<Duration, LabError> {
    let (asks, answers) = (socket(a)?, socket(b)?);
    let prepare = || {
        asks.connect(answers.local_addr()?)?;
        asks.set_read_timeout(Some(2 * expected + Duration::from_secs(1)))?;
        answers.set_read_timeout(Some(GLANCE))
    };
    prepare().map_err(LabError::system("connect a UDP socket"))?;
    let (done, began) = (AtomicBool::new(false), Instant::now());
    let mut trips = std::thread::scope(|scope| {
        scope.spawn(|| echo(&answers, &done));
        scope.spawn(|| ask(&asks, began));
        let trips = collect(&asks, began);
        done.store(true, Ordering::Relaxed);
        trips
    });
    trips.sort_unstable();
    trips.get(trips.len() / 2).copied().ok_or_else(|| LabError::NoEcho(b.name().to_owned()))
}

fn socket(node: &Node) -> Result<UdpSocket, LabError> {
    node.run(|| UdpSocket::bind((node.address(), 0)))?
        .map_err(LabError::system("make a UDP socket in a node"))
}

/// Sends packets that say when they were sent, in nanoseconds since the beginning.
fn ask(socket: &UdpSocket, began: Instant) {
    for _ in 0..PACKETS {
        let sent = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // A packet that could not be sent counts as lost.
        let _ = socket.send(&sent.to_be_bytes());
        std::thread::sleep(GAP);
    }
}

fn echo(socket: &UdpSocket, done: &AtomicBool) {
    let mut packet = [0; 8];
    while !done.load(Ordering::Relaxed) {
        if let Ok((8, from)) = socket.recv_from(&mut packet) {
            let _ = socket.send_to(&packet, from);
        }
    }
}

/// The round trips of the packets that come back; ends when all have or nothing comes any more.
fn collect(socket: &UdpSocket, began: Instant) -> Vec<Duration> {
    let mut trips = Vec::new();
    let mut packet = [0; 8];
    while trips.len() < PACKETS && socket.recv(&mut packet).is_ok() {
        let sent = Duration::from_nanos(u64::from_be_bytes(packet));
        trips.push(began.elapsed().saturating_sub(sent));
    }
    trips
}
