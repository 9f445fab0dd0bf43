//! Closing a connection without losing the last response.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

/// How long input is discarded after the last response, so that the client can read it.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How much input is discarded, in bytes.
pub(super) const MAX_DISCARDED: usize = 64 * 1024;

/// Whether the call is to be repeated later: it did not fail.
pub(super) fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Shuts down the sending side, which also sends what the kernel holds back of the last response
/// (`MSG_MORE`). A close alone would discard that if the client has sent input that was not read.
pub(super) fn shutdown_write(socket: impl AsFd) {
    let _ = shutdown(socket, Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use rustix::net::{SendFlags, send};

    use super::*;

    #[test]
    fn a_response_arrives_although_input_was_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"x").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(server.peek(&mut [0]).unwrap(), 1, "the input has arrived and is not read");
        send(&server, b"answer", SendFlags::MORE).unwrap();
        shutdown_write(&server);
        drop(server);
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
}
