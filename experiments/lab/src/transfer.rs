//! TCP throughput from one node to another.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::{LabError, Node};

/// The time limit for a read or write.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// The payload rate of one TCP connection in bits per second, received by `to` during `time`. The
/// time `lead` before that, in which the congestion window grows, is not counted.
///
/// # Errors
/// [`LabError::System`] if the connection could not be made or broke, [`LabError::Gone`].
pub fn throughput(from: &Node, to: &Node, lead: Duration, time: Duration) -> Result<f64, LabError> {
    throughput_at(from, (to, to.address()), lead, time)
}

/// As [`throughput`], to this address of `to`, for example that on a [`crate::Segment`].
///
/// # Errors
/// As [`throughput`].
pub fn throughput_at(
    from: &Node,
    (to, address): (&Node, IpAddr),
    lead: Duration,
    time: Duration,
) -> Result<f64, LabError> {
    let broke = |error| LabError::system("carry data from node to node")(error);
    let listener = to.run(|| TcpListener::bind((address, 0)))?.map_err(broke)?;
    let at = listener.local_addr().map_err(broke)?;
    let source = from.run(|| TcpStream::connect_timeout(&at, IO_TIMEOUT))?.map_err(broke)?;
    let (sink, _) = listener.accept().map_err(broke)?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(source));
        let rate = receive(sink, lead, time);
        // The sender ends because the receiver has closed.
        let _ = sender.join();
        rate
    })
    .map_err(broke)
}

fn send(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let bytes = vec![0; 256 * 1024];
    loop {
        stream.write_all(&bytes)?;
    }
}

fn receive(mut stream: TcpStream, lead: Duration, time: Duration) -> std::io::Result<f64> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    let mut buffer = vec![0; 256 * 1024];
    let opened = Instant::now();
    while opened.elapsed() < lead {
        nonzero(stream.read(&mut buffer)?)?;
    }
    let began = Instant::now();
    let mut bytes = 0;
    while began.elapsed() < time {
        bytes += nonzero(stream.read(&mut buffer)?)?;
    }
    Ok(bytes as f64 * 8.0 / began.elapsed().as_secs_f64())
}

fn nonzero(bytes: usize) -> std::io::Result<usize> {
    if bytes == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}
