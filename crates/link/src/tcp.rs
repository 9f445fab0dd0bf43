//! TCP as a link.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::Link;

impl Link for TcpStream {
    fn limit_unsent(&self, bytes: Option<u32>) {
        // A hint: where the kernel lacks the option, urgent data waits longer and nothing else changes.
        let _ = SockRef::from(self).set_tcp_notsent_lowat(bytes.unwrap_or(u32::MAX));
    }
}

/// Makes a connected socket a link: no Nagle delay, because batching is decided above.
///
/// # Errors
/// The operating system's, if the socket is not connected any more.
pub fn prepare_tcp(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to `address` (`host:port`), trying each address that the name has for at most `limit`.
///
/// # Errors
/// The last address's error; `TimedOut` if it did not answer; `NotFound` if the name has no address.
pub async fn connect_tcp(address: &str, limit: Duration) -> io::Result<TcpStream> {
    let addresses = timeout(limit, lookup_host(address)).await??;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return prepare_tcp(stream),
            Ok(Err(error)) => last = error,
            Err(elapsed) => last = elapsed.into(),
        }
    }
    Err(last)
}
