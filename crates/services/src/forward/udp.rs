//! Datagrams: a stream for each flow, a message for each datagram.

use std::io;
use std::time::Duration;

use levada_session::{Stream, StreamError};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::message::{CONNECTED, Failure};
use super::pump::Cut;

/// The longest datagram, in bytes (RFC 768: a length of 16 bits).
pub const MAX_DATAGRAM: usize = 65_535;
/// A flow on which nothing passes for so long has ended (RFC 4787 section 4.3: not less than two minutes).
pub const IDLE: Duration = Duration::from_secs(120);

/// Answers a stream that the peer has opened for a flow, and carries its datagrams until nothing has passed for `idle`,
/// or the peer has ended it.
///
/// # Errors
/// [`Cut`] says why there is none, or why it was cut.
pub(super) async fn carry(
    mut stream: Stream,
    connected: Result<UdpSocket, Failure>,
    idle: Duration,
) -> Result<(), Cut> {
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
                Err(error) => passing(&error)?,
            },
            received = receive.receive_into(&mut message, MAX_DATAGRAM) => {
                if !received? {
                    break;
                }
                // What the socket has to say of an earlier datagram comes in the place of sending this one, once.
                // And datagrams may be lost.
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

/// What a socket says of datagrams that it sent before (nobody listens there) ends no flow: somebody may listen soon.
fn passing(error: &io::Error) -> Result<(), StreamError> {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable => Ok(()),
        _ => Err(StreamError::Finished),
    }
}
