//! The shutdown of a driver: the last bytes leave, and the peer ends the transport.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::input::with_read_buffer;
use super::{Driver, Progress, ROUNDS};

/// How long the transport may take to accept the next bytes of an ended connection, and the peer to
/// end it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Driver {
    /// Sends what is still sealed (a close, an alert), then reads until the peer has ended too.
    /// Closing a socket with unread input would send a TCP reset, which discards what was sent.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // For a peer that did not finish its handshake, one attempt is made, and the socket is
        // closed at once.
        let timeout = if self.shared.lock().connected { CLOSE_TIMEOUT } else { Duration::ZERO };
        let until = *self.close_deadline.get_or_insert_with(|| Instant::now() + timeout);
        while !self.flushed {
            match self.poll_output(cx) {
                Progress::Moved if Instant::now() < until => {
                    // A slow peer that accepts bytes gets the full time for the next ones.
                    self.close_deadline = Some(Instant::now() + timeout);
                }
                Progress::Waiting if self.sent < self.output.len() => {
                    return self.poll_until(until, cx);
                }
                Progress::Waiting => {
                    let _ = Pin::new(&mut self.transport).poll_shutdown(cx);
                    self.flushed = true;
                    self.shared.lock().flushed();
                }
                Progress::Moved | Progress::Over => return Poll::Ready(()),
            }
        }
        self.poll_discard(until, cx)
    }

    /// Reads and discards until the peer ends the transport.
    fn poll_discard(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS {
            let transport = Pin::new(&mut self.transport);
            let read = with_read_buffer(|buffer| {
                let mut buffer = ReadBuf::new(buffer);
                transport.poll_read(cx, &mut buffer).map_ok(|()| buffer.filled().len())
            });
            match read {
                Poll::Ready(Ok(length)) if length > 0 && Instant::now() < until => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.poll_until(until, cx),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll(cx, Some(until))
    }
}
