//! TCP as a link.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::Link;

/// A TCP connection that fills its send buffer.
///
/// Linux calls a socket writable again only when a third of its send buffer is free. Where that buffer is
/// what limits a connection (by default it grows to 4 MiB: 100 MB/s at a round trip of 40 ms), a sender that
/// waits to be told keeps it a sixth emptier than it might be, on average. So a sender that was refused
/// tries again after a while, whether or not the socket was called writable.
pub struct Tcp {
    stream: TcpStream,
    retry: Pin<Box<Sleep>>,
    /// The timer runs: the last write was refused.
    armed: bool,
    pause: Duration,
}

/// A sender that was refused waits at least so long…
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// …and at most so long,
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
/// longer each time if less than this could be written.
const WORTHWHILE: usize = 64 * 1024;

impl Tcp {
    /// Makes a connected socket a link: no Nagle delay, because batching is decided above.
    ///
    /// # Errors
    /// The operating system's, if the socket is not connected any more.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let retry = Box::pin(sleep(Duration::ZERO));
        Ok(Self { stream, retry, armed: false, pause: SHORTEST_PAUSE })
    }

    /// Tries at the end of each pause to write, though the socket was not called writable.
    fn poll_retry(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if !self.armed {
                self.armed = true;
                self.retry.as_mut().reset(Instant::now() + self.pause);
            }
            ready!(self.retry.as_mut().poll(cx));
            self.armed = false;
            let written = send(&self.stream, bytes, SendFlags::NOSIGNAL);
            let length = written.as_ref().map_or(0, |length| *length);
            self.pause = if length < WORTHWHILE.min(bytes.len()) {
                LONGEST_PAUSE.min(self.pause * 2)
            } else {
                SHORTEST_PAUSE
            };
            match written {
                Err(Errno::AGAIN) => {}
                other => return Poll::Ready(other.map_err(io::Error::from)),
            }
        }
    }
}

/// Sets the highest rate at which TCP paces what it sends (`SO_MAX_PACING_RATE`, socket(7)). A hint, as above.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn pace(stream: &TcpStream, bytes_per_second: u64) {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open as long as `stream` is borrowed, and the kernel reads exactly the eight bytes
    // of `bytes_per_second`, which outlive the call.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            size_of::<u64>() as libc::socklen_t,
        );
    }
}

#[cfg(not(target_os = "linux"))]
fn pace(_stream: &TcpStream, _bytes_per_second: u64) {}

impl Link for Tcp {
    fn limit_unsent(&self, bytes: Option<u32>) {
        // A hint: where the kernel lacks the option, urgent data waits longer and nothing else changes.
        let _ = SockRef::from(&self.stream).set_tcp_notsent_lowat(bytes.unwrap_or(u32::MAX));
    }

    fn limit_rate(&self, bytes_per_second: Option<u64>) {
        pace(&self.stream, bytes_per_second.unwrap_or(u64::MAX));
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Pending => self.poll_retry(cx, bytes),
            written => {
                self.armed = false;
                written
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Connects to `address` (`host:port`), trying each address that the name has for at most `limit`.
///
/// # Errors
/// The last address's error; `TimedOut` if it did not answer; `NotFound` if the name has no address.
pub async fn connect_tcp(address: &str, limit: Duration) -> io::Result<Tcp> {
    let addresses = timeout(limit, lookup_host(address)).await??;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Tcp::new(stream),
            Ok(Err(error)) => last = error,
            Err(elapsed) => last = elapsed.into(),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// What a writer puts into a socket until it is refused for so long that it has given up.
    async fn fill(writer: &mut (impl AsyncWrite + Unpin)) -> usize {
        let mut total = 0;
        let patience = Duration::from_millis(200);
        let bytes = [0; 64 * 1024];
        let write = async |writer: &mut _, bytes: &[u8]| {
            timeout(patience, tokio::io::AsyncWriteExt::write(writer, bytes)).await
        };
        while let Ok(length) = write(writer, &bytes).await {
            total += length.unwrap();
        }
        total
    }

    #[tokio::test]
    async fn the_send_buffer_is_filled_again_before_the_socket_is_called_writable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let mut near = Tcp::new(near).unwrap();
        let first = fill(&mut near).await;
        // Far less than a third of what is under way.
        let little = first / 16;
        far.read_exact(&mut vec![0; little]).await.unwrap();
        let more = fill(&mut near).await;
        assert!(more >= little / 2, "{more} of {little} after {first}");
    }
}
