//! How much TCP carries from one node to another.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::{LabError, Node};

/// How long a read or write may stand still.
const PATIENCE: Duration = Duration::from_secs(10);

/// Payload of one TCP connection, in bits per second, as it arrives at `to` during `time`. What arrives during `lead` before that is
/// not counted: the connection is still gaining speed.
///
/// # Errors
/// [`LabError::System`] if the connection could not be made or broke, [`LabError::Gone`].
pub fn throughput(from: &Node, to: &Node, lead: Duration, time: Duration) -> Result<f64, LabError> {
    let broke = |error| LabError::system("carry data from node to node")(error);
    let listener = to.run(|| TcpListener::bind((to.address(), 0)))?.map_err(broke)?;
    let at = listener.local_addr().map_err(broke)?;
    let source = from.run(|| TcpStream::connect_timeout(&at, PATIENCE))?.map_err(broke)?;
    let (sink, _) = listener.accept().map_err(broke)?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(source));
        let rate = receive(sink, lead, time);
        // It ends because the receiver has closed its side.
        let _ = sender.join();
        rate
    })
    .map_err(broke)
}

fn send(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let bytes = vec![0; 256 * 1024];
    loop {
        stream.write_all(&bytes)?;
    }
}

fn receive(mut stream: TcpStream, lead: Duration, time: Duration) -> std::io::Result<f64> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 256 * 1024];
    let opened = Instant::now();
    while opened.elapsed() < lead {
        some(stream.read(&mut buffer)?)?;
    }
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < time {
        bytes += some(stream.read(&mut buffer)?)?;
    }
    Ok(bytes as f64 * 8.0 / began.elapsed().as_secs_f64())
}

fn some(bytes: usize) -> std::io::Result<usize> {
    if bytes == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}
