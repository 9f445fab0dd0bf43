//! How connections end.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

/// How long a refused client may go on talking, so that it gets to read why.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How much of what nobody wants is read, in bytes.
pub(super) const MOST: usize = 64 * 1024;

/// It was no failure: there is nothing to do yet.
pub(super) fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Ends our side: what the kernel keeps back of the last answer goes out with that. To close alone would throw it away if
/// something has come that nobody has read.
pub(super) fn finish(socket: impl AsFd) {
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
    fn an_answer_arrives_though_its_client_said_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"x").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(server.peek(&mut [0]).unwrap(), 1, "it has come, and nobody reads it");
        send(&server, b"answer", SendFlags::MORE).unwrap();
        finish(&server);
        drop(server);
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
}
