//! TCP as a transport.

mod options;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{SendFlags, send};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::Transport;

/// A TCP connection that fills its send buffer.
///
/// Linux reports a socket as writable again only when a third of its send buffer is free. Where
/// that buffer limits a connection (by default it grows to 4 MiB: 100 MB/s at a round trip of 40
/// ms), a sender that waits for the report keeps it a sixth emptier than possible, on average. So a
/// refused sender also tries again after a pause.
pub struct Tcp {
    stream: TcpStream,
    retry: Pin<Box<Sleep>>,
    state: State,
    pause: Duration,
    /// Bytes written since the last pause.
    progress: usize,
    /// Where writes end, while unsent bytes are limited.
    packets: Option<Packets>,
    /// The congestion control that [`REACTING`] has replaced.
    replaced: Option<Vec<u8>>,
}

/// Whether the socket takes bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It was not full at the last write, or is reported as writable.
    Reported,
    /// It was full: the timer of the pause runs.
    Paused,
    /// A pause has ended: writes are tried until one is refused.
    Tried,
}

/// Where writes end while unsent bytes are limited.
///
/// Linux checks the limit only when it allocates a new buffer, and fills the last one, to 64 KiB,
/// before that. So each write requests a separate buffer (`MSG_EOR`). Writes end with a full
/// packet: short packets would use up the rate of the network, and bbr, which counts packets, would
/// estimate a higher rate than there is.
#[derive(Clone, Copy)]
struct Packets {
    /// The bytes of a full packet.
    full: usize,
    /// How many bytes of an incomplete packet were written last.
    begun: usize,
    /// The most bytes of one write: the kernel takes a whole write as soon as it is below the
    /// limit.
    most: usize,
}

/// Congestion controls that only react to loss, the better one first. The kernel may permit the
/// second one only.
const REACTING: [&[u8]; 2] = [b"cubic", b"reno"];
/// Congestion controls whose name begins like this send next to nothing for 200 ms, once in ten
/// seconds, to measure the round trip.
const PROBING: &[u8] = b"bbr";

/// The shortest pause of a refused sender.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause of a refused sender.
const MAX_PAUSE: Duration = Duration::from_millis(16);
/// The pause doubles if fewer bytes than this could be written after it, and halves if four times
/// as many could: fewer wake-ups, while a send buffer of 4 MiB that is refilled by this many bytes
/// is emptier by a sixteenth, on average.
const MIN_PROGRESS: usize = 512 * 1024;

impl Tcp {
    /// A transport over a connected socket. It disables Nagle's algorithm, because the channel
    /// batches writes. After an interruption, what was lost is sent again within a second, if the
    /// kernel supports that (Linux 6.15).
    ///
    /// # Errors
    /// The operating system's error, if the socket is no longer connected.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        options::recover_soon(&stream);
        let retry = Box::pin(sleep(Duration::ZERO));
        Ok(Self {
            stream,
            retry,
            state: State::Reported,
            pause: MIN_PAUSE,
            progress: 0,
            packets: None,
            replaced: None,
        })
    }

    /// Writes what fits without waiting.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(packets) = &mut self.packets else {
            return Ok(send(&self.stream, bytes, SendFlags::NOSIGNAL)?);
        };
        let part = packets.whole(bytes.len().min(packets.most));
        let (part, flags) = match part {
            0 => (bytes.len(), SendFlags::NOSIGNAL),
            part => (part, SendFlags::NOSIGNAL | SendFlags::EOR),
        };
        let written = send(&self.stream, &bytes[..part], flags)?;
        packets.begun = (packets.begun + written) % packets.full;
        Ok(written)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            // `try_io` clears tokio's readiness of the full socket.
            let full = || Err(io::ErrorKind::WouldBlock.into());
            match self.send(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = self.stream.try_io::<()>(Interest::WRITABLE, full);
                }
                written => return Poll::Ready(written),
            }
        }
    }

    /// Tries to write after each pause, even if the socket was not reported as writable.
    fn poll_retry(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if self.state == State::Paused {
                ready!(self.retry.as_mut().poll(cx));
                self.state = State::Tried;
            }
            if self.state == State::Tried {
                match self.send(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.fit_pause(),
                    written => return Poll::Ready(written),
                }
            }
            self.state = State::Paused;
            self.progress = 0;
            self.retry.as_mut().reset(Instant::now() + self.pause);
        }
    }

    /// Adapts the next pause to what could be written since the last one.
    fn fit_pause(&mut self) {
        if self.progress < MIN_PROGRESS {
            self.pause = MAX_PAUSE.min(self.pause * 2);
        } else if self.progress >= 4 * MIN_PROGRESS {
            self.pause = MIN_PAUSE.max(self.pause / 2);
        }
    }
}

impl Packets {
    /// The most of `length` bytes that end with a full packet.
    fn whole(self, length: usize) -> usize {
        ((self.begun + length) / self.full * self.full).saturating_sub(self.begun)
    }
}

impl Transport for Tcp {
    fn limit_unsent(&mut self, bytes: Option<u32>) {
        // Errors are ignored: without the option interactive data waits longer, and nothing else
        // changes.
        let _ = SockRef::from(&self.stream).set_tcp_notsent_lowat(bytes.unwrap_or(u32::MAX));
        let full = SockRef::from(&self.stream).tcp_mss().ok().filter(|full| *full > 0);
        let begun = self.packets.map_or(0, |packets| packets.begun);
        let most = bytes.map_or(usize::MAX, |bytes| bytes as usize);
        let packets = full.map(|full| Packets { full: full as usize, begun, most });
        self.packets = packets.filter(|_| bytes.is_some());
    }

    fn limit_rate(&mut self, bytes_per_second: Option<u64>) {
        options::set_max_pacing_rate(&self.stream, bytes_per_second.unwrap_or(u64::MAX));
    }

    fn sending_rate(&self) -> Option<u64> {
        options::sending_rate(&self.stream)
    }

    fn probe(&mut self, probes: bool) {
        let socket = SockRef::from(&self.stream);
        // Errors are ignored: the control stays as it is.
        match self.replaced.take() {
            Some(replaced) if probes => {
                let _ = socket.set_tcp_congestion(&replaced);
            }
            None if !probes => {
                let current = socket.tcp_congestion().unwrap_or_default();
                let set = |control: &&[u8]| socket.set_tcp_congestion(control).is_ok();
                if current.starts_with(PROBING) && REACTING.iter().any(set) {
                    self.replaced = Some(current);
                }
            }
            replaced => self.replaced = replaced,
        }
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
        let sent = match self.poll_send(cx, bytes) {
            Poll::Pending => ready!(self.poll_retry(cx, bytes)),
            Poll::Ready(sent) => {
                self.state = State::Reported;
                sent
            }
        };
        self.progress += sent.as_ref().map_or(0, |length| *length);
        Poll::Ready(sent)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Connects to `address` (`host:port`, or a resolved one). It tries the addresses of the name in
/// order, each for at most `limit`.
///
/// # Errors
/// The error of the last address; `TimedOut` if it did not answer; `NotFound` if the name has no
/// address.
pub async fn connect_tcp(address: impl ToSocketAddrs, limit: Duration) -> io::Result<Tcp> {
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

    #[test]
    fn writes_end_with_a_full_packet() {
        let packets = |begun| Packets { full: 1448, begun, most: usize::MAX };
        assert_eq!(packets(0).whole(16_400), 11 * 1448);
        assert_eq!(packets(472).whole(16_400), 11 * 1448 - 472);
        assert_eq!(packets(472).whole(976), 976);
        // No packet ends within these bytes.
        assert_eq!(packets(472).whole(975), 0);
        assert_eq!(packets(1500).whole(100), 0);
    }

    #[tokio::test]
    async fn only_a_control_that_probes_is_replaced_and_only_for_a_while() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for control in [b"bbr", &b"reno"[..]] {
            let mut near = Tcp::new(TcpStream::connect(address).await.unwrap()).unwrap();
            let name = |near: &Tcp| {
                let name = SockRef::from(&near.stream).tcp_congestion().unwrap();
                name.split(|byte| *byte == 0).next().unwrap().to_vec()
            };
            if SockRef::from(&near.stream).set_tcp_congestion(control).is_err() {
                // Not every kernel has bbr, or permits it; then the system's stays.
                assert_eq!(control, b"bbr");
                continue;
            }
            for _ in 0..2 {
                near.probe(false);
                near.probe(false);
                assert!(REACTING.contains(&&name(&near)[..]));
                assert_eq!(name(&near) == control, control == b"reno");
                near.probe(true);
                near.probe(true);
                assert_eq!(name(&near), control);
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_says_at_which_rate_a_connection_sends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = Tcp::new(TcpStream::connect(address).await.unwrap()).unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut near, &[1; 1000]).await.unwrap();
        far.read_exact(&mut [0; 1000]).await.unwrap();
        assert!(near.sending_rate().is_some_and(|rate| rate > 1000));
        for most in [3_000_u32, 100_000] {
            near.limit_unsent(Some(most));
            let packets = near.packets.unwrap();
            assert_eq!(packets.most, most as usize);
            assert!(packets.whole(1 << 20) > 100_000);
        }
    }

    /// Writes until a write has been refused for 200 ms; returns how many bytes.
    async fn fill(writer: &mut (impl AsyncWrite + Unpin)) -> usize {
        let mut total = 0;
        let limit = Duration::from_millis(200);
        let bytes = [0; 64 * 1024];
        let write = async |writer: &mut _, bytes: &[u8]| {
            timeout(limit, tokio::io::AsyncWriteExt::write(writer, bytes)).await
        };
        while let Ok(length) = write(writer, &bytes).await {
            total += length.unwrap();
        }
        total
    }

    #[tokio::test]
    async fn the_send_buffer_is_refilled_before_the_socket_is_reported_as_writable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let mut near = Tcp::new(near).unwrap();
        let first = fill(&mut near).await;
        // Far less than a third of the bytes in flight.
        let little = first / 16;
        far.read_exact(&mut vec![0; little]).await.unwrap();
        let more = fill(&mut near).await;
        assert!(more >= little / 2, "{more} of {little} after {first}");
    }
}
