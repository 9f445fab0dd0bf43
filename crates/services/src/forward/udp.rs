//! UDP: a stream for each flow, a message for each datagram.

use std::io;
use std::time::Duration;

use levada_session::{Stream, StreamError};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::message::{CONNECTED, Failure};
use super::pump::CarryError;

/// The longest datagram, in bytes (RFC 768: a length of 16 bits).
pub const MAX_DATAGRAM: usize = 65_535;
/// The idle timeout of a flow (RFC 4787 section 4.3: not less than two minutes).
pub const IDLE: Duration = Duration::from_secs(120);

/// Answers a stream that the peer has opened for a flow, and carries its datagrams until there was
/// none for `idle`, or the peer has finished the stream.
///
/// # Errors
/// [`CarryError`]: why there is no flow, or why it was cut.
pub(super) async fn carry(
    mut stream: Stream,
    connected: Result<UdpSocket, Failure>,
    idle: Duration,
) -> Result<(), CarryError> {
    let socket = match connected {
        Ok(socket) => socket,
        Err(failure) => return super::pump::carry_accepted(stream, Err(failure)).await,
    };
    stream.send(CONNECTED).await?;
    let (mut send, mut receive) = stream.split();
    let mut datagram = vec![0; MAX_DATAGRAM];
    let mut message = Vec::new();
    let mut last = Instant::now();
    loop {
        tokio::select! {
            received = socket.recv(&mut datagram) => match received {
                Ok(length) => send.send(&datagram[..length]).await?,
                Err(error) => ignore_transient(&error)?,
            },
            received = receive.receive_into(&mut message, MAX_DATAGRAM) => {
                if !received? {
                    break;
                }
                // `send` may report the error of an earlier datagram once, instead of sending this
                // one. A second error is ignored: datagrams may be lost.
                if socket.send(&message).await.is_err() {
                    let _ = socket.send(&message).await;
                }
                message.clear();
            }
            () = sleep_until(last + idle) => break,
        }
        last = Instant::now();
    }
    send.finish().await?;
    Ok(())
}

/// Errors of earlier datagrams (ICMP: no listener at the target) do not end the flow: a listener
/// may start later.
fn ignore_transient(error: &io::Error) -> Result<(), StreamError> {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable => Ok(()),
        _ => Err(StreamError::Finished),
    }
}
