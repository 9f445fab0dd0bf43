//! What an operation, a message, a kilobyte and a connection cost, as in the paper's table.

use std::env;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use levada_harness::{Measured, pin};
use levada_ring::{Segment, Side};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketType, connect, shutdown, socket, sockopt,
};

use super::calls::{self, each};
use super::connections::Series;
use super::exchange::{MESSAGE, trips};
use super::fast::{OFFER_AT, is_fast};
use super::peer::{Peer, Way};
use super::profile;
use super::several::cpu_seconds;
use super::subject::Subject;

/// What is measured. A subject has those that it has a value for.
pub const METRICS: [(&str, &str); 14] = [
    ("system call", "ns"),
    ("operation, one thread", "ns"),
    ("operation", "ns"),
    ("operation, accepted", "ns"),
    ("C library", "ns"),
    ("lock of the descriptor", "ns"),
    ("message", "ns"),
    ("kilobyte", "ns"),
    ("buffers", "ns"),
    ("transport", "ns"),
    ("packet handling", "ns"),
    ("connection", "ns"),
    ("handshake", "ns"),
    ("monitor", "ns"),
];

/// Calls, and messages through a ring alone, of one measurement.
const CALLS: u32 = 200_000;
/// The longer message of the two whose difference gives the time of a kilobyte.
const LONG: usize = 32 << 10;
/// Handshakes of one measurement.
const HANDSHAKES: u32 = 2000;

type Values = Vec<(&'static str, f64)>;

/// Measures each. A message takes half of a round trip.
pub fn measure(subject: Subject, _: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    pin(0)?;
    let mut values = operations(subject)?;
    values.extend(packets(subject, quick)?);
    values.extend(connections(subject, quick)?);
    Ok(values.into_iter().map(|(metric, value)| Measured::new(metric, "ns", value)).collect())
}

fn operations(subject: Subject) -> anyhow::Result<Values> {
    // The kernel's own number of this process: a call that does nothing else than enter the kernel.
    let system_call = each(CALLS, || {
        let _ = rustix::process::getppid();
        Ok(())
    })?;
    let [connecting, accepted] = calls::both(subject == Subject::FastDirect)?;
    Ok(vec![
        ("system call", system_call),
        ("operation, one thread", connecting.alone),
        ("operation", connecting.shared),
        ("operation, accepted", accepted.shared),
        ("C library", connecting.alone - connecting.by_number),
        ("lock of the descriptor", connecting.shared - connecting.alone),
    ])
}

fn packets(subject: Subject, quick: bool) -> anyhow::Result<Values> {
    let half = |length| {
        let peer = Peer::start(Way::Single, subject, length)?;
        peer.introduce()?;
        let measured = trips(peer.connect()?, length, quick)?;
        let trip = measured.first().context("no round trip was measured")?;
        anyhow::Ok(trip.value * 1e3 / 2.0)
    };
    let message = half(MESSAGE)?;
    let kilobyte = (half(LONG)? - message) / (LONG as f64 / 1024.0);
    let mut values = vec![("message", message), ("kilobyte", kilobyte)];
    match subject {
        Subject::Tcp => values.extend(profile::kernel(quick)?),
        _ if is_fast(subject) => values.push(("buffers", ring_alone()?)),
        _ => {}
    }
    Ok(values)
}

/// The time in which one thread writes a message to a ring and reads it.
fn ring_alone() -> anyhow::Result<f64> {
    let (file, near) = Segment::create()?;
    let far = Segment::open(&file)?;
    let (mut producer, _) = near.ends(Side::Connector);
    let (_, mut consumer) = far.ends(Side::Acceptor);
    let mut message = [7; MESSAGE];
    each(CALLS, || {
        ensure!(producer.push(&message)? == MESSAGE, "the ring is full");
        let _ = producer.publish();
        ensure!(consumer.read(&mut message)?.0 == MESSAGE, "the ring is empty");
        Ok(())
    })
}

fn connections(subject: Subject, quick: bool) -> anyhow::Result<Values> {
    let peer = Peer::start(Way::Single, subject, MESSAGE)?;
    peer.introduce()?;
    let connects = Series::run(&peer, 1, 1, quick)?.connects;
    let middle = |times: &Histogram<u64>| times.value_at_quantile(0.5) as f64;
    let mut values =
        vec![("connection", middle(&connects)), ("handshake", middle(&handshakes(&peer)?))];
    if is_fast(subject) {
        // A connection that leaves TCP needs some exchanges for it.
        let exchanges = if subject == Subject::FastDirect { 1 } else { 4 * OFFER_AT };
        let before = monitor_seconds()?;
        let count = Series::run(&peer, 1, exchanges, quick)?.count;
        let seconds = monitor_seconds()? - before;
        values.push(("monitor", seconds * 1e9 / count as f64));
    }
    Ok(values)
}

/// connect(2) by its number: the kernel makes the connection.
fn handshakes(peer: &Peer) -> anyhow::Result<Histogram<u64>> {
    let mut times = Histogram::new(3)?;
    for _ in 0..HANDSHAKES {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let start = Instant::now();
        connect(&socket, &peer.address())?;
        times.record(u64::try_from(start.elapsed().as_nanos())?.max(1))?;
        // The server has accepted it when it closes it: no more than one waits in its backlog.
        shutdown(&socket, Shutdown::Write)?;
        ensure!(rustix::io::read(&socket, &mut [0])? == 0, "the server has sent something");
    }
    Ok(times)
}

/// The CPU time of the monitor so far.
fn monitor_seconds() -> anyhow::Result<f64> {
    let path = env::var_os("LEVADA_FAST_SOCKET").context("there is no monitor")?;
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    connect(&socket, &SocketAddrUnix::new(Path::new(&path))?)?;
    let process = sockopt::socket_peercred(&socket)?.pid.as_raw_nonzero().get();
    cpu_seconds(process.unsigned_abs())
}
