//! How connections end.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a refused client may go on talking, so that it gets to read why.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much of what nobody wants is read, in bytes.
const MOST: usize = 64 * 1024;

/// It was no failure: there is nothing to do yet.
pub(super) fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Ends our side: what the kernel keeps back of the last answer goes out with that. To close alone would throw it away if
/// something has come that nobody has read.
pub(super) fn finish(socket: impl AsFd) {
    let _ = shutdown(socket, Shutdown::Write);
}

/// Reads what a client still sends after our end, so that closing does not destroy our answer (RFC 9112 section 9.6).
pub(super) async fn linger(stream: &TcpStream) {
    let _ = timeout(PATIENCE, closed(stream)).await;
}

/// Ends when the client does, or has said too much: it is of no interest.
pub(super) async fn closed(stream: &TcpStream) {
    let mut piece = [0; 512];
    let mut rest = MOST;
    while stream.readable().await.is_ok() && rest > 0 {
        match stream.try_read(&mut piece) {
            Ok(count @ 1..) => rest = rest.saturating_sub(count),
            Err(error) if is_patience(&error) => {}
            _ => return,
        }
    }
}
