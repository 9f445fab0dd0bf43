//! The round trip between two nodes, measured by UDP echo.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{LabError, Node};

/// The length of a packet with its IP and UDP headers, in bytes.
pub(crate) const LENGTH: u64 = 36;
const PACKETS: usize = 31;
const GAP: Duration = Duration::from_millis(5);
/// How often the echo server checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The median round trip of 31 packets. The time limit for each is twice `expected` plus one
/// second. Lost packets are ignored.
pub(crate) fn median(a: &Node, b: &Node, expected: Duration) -> Result<Duration, LabError> {
    let client = socket(a)?;
    let server = socket(b)?;
    let prepare = || {
        client.connect(server.local_addr()?)?;
        client.set_read_timeout(Some(2 * expected + Duration::from_secs(1)))?;
        server.set_read_timeout(Some(POLL_INTERVAL))
    };
    prepare().map_err(LabError::system("connect a UDP socket"))?;
    let done = AtomicBool::new(false);
    let began = Instant::now();
    let mut trips = std::thread::scope(|scope| {
        scope.spawn(|| echo(&server, &done));
        scope.spawn(|| send_probes(&client, began));
        let trips = collect(&client, began);
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

/// Sends packets with their send times, in nanoseconds since `began`.
fn send_probes(socket: &UdpSocket, began: Instant) {
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

/// The round trips of echoed packets, until all have arrived or none arrives within the time limit.
fn collect(socket: &UdpSocket, began: Instant) -> Vec<Duration> {
    let mut trips = Vec::new();
    let mut packet = [0; 8];
    while trips.len() < PACKETS && socket.recv(&mut packet).is_ok() {
        let sent = Duration::from_nanos(u64::from_be_bytes(packet));
        trips.push(began.elapsed().saturating_sub(sent));
    }
    trips
}
