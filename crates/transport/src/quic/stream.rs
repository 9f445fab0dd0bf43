//! The stream of a connection, as a transport.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, StoppedError, VarInt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::config::WINDOW;
use super::congestion::Shared;
use crate::Transport;

/// How long the other side may take to acknowledge what was written before the transport was shut
/// down.
const LINGER: Duration = Duration::from_secs(30);
/// The code of a connection that has ended with all bytes delivered.
const DONE: VarInt = VarInt::from_u32(0);
/// The code of a connection that was dropped before.
const DROPPED: VarInt = VarInt::from_u32(1);

/// One end of a QUIC connection.
///
/// Shutting it down ends this direction, and is complete when the other side has acknowledged all
/// bytes. A transport that is dropped meanwhile goes on delivering them for up to 30 s; one that is
/// dropped without being shut down resets the connection.
pub struct Quic {
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
    shared: Arc<Shared>,
    /// The limit on unsent bytes.
    unsent: Option<u32>,
    /// The bytes that may be written and not yet acknowledged.
    send_window: u64,
    closing: Closing,
}

type Acknowledged =
    Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>> + Send + Sync>>;

enum Closing {
    No,
    /// Waits for the acknowledgement of all bytes.
    Finished(Acknowledged),
    Done,
}

impl Quic {
    pub(super) fn new(
        connection: Connection,
        (send, receive): (SendStream, RecvStream),
        shared: Arc<Shared>,
    ) -> Self {
        let send_window = u64::from(WINDOW);
        Self { connection, send, receive, shared, unsent: None, send_window, closing: Closing::No }
    }

    /// The reason why the connection has ended, where `error` only says that it has.
    fn reason(&self, error: io::Error) -> io::Error {
        self.connection.close_reason().map_or(error, Into::into)
    }

    /// Lets the written bytes exceed those in flight by the limit on unsent bytes.
    ///
    /// QUIC's limit counts lost bytes until they are acknowledged, and a congestion window that is
    /// not filled does not grow: with less than a quarter above it, a path with 1 % loss stayed at
    /// a third of its rate.
    fn fit_send_window(&mut self) {
        let in_flight = self.shared.window();
        let most = u64::from(WINDOW);
        let wanted = match self.unsent {
            Some(unsent) if in_flight > 0 => most.min(in_flight / 4 * 5 + u64::from(unsent)),
            _ => most,
        };
        // The limit never lags behind a growing window, and follows a shrinking one in steps.
        if wanted > self.send_window || wanted < self.send_window / 8 * 7 {
            self.send_window = wanted;
            self.connection.set_send_window(wanted);
        }
    }
}

impl Transport for Quic {
    fn limit_unsent(&mut self, bytes: Option<u32>) {
        self.unsent = bytes;
        self.fit_send_window();
    }

    fn limit_rate(&mut self, bytes_per_second: Option<u64>) {
        self.shared.limit_rate(bytes_per_second);
    }

    fn limit_unread(&mut self, bytes: Option<u32>) {
        let window = bytes.map_or(WINDOW, |bytes| bytes.min(WINDOW));
        self.connection.set_receive_window(VarInt::from_u32(window));
    }
}

impl AsyncRead for Quic {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(AsyncRead::poll_read(Pin::new(&mut self.receive), cx, buffer));
        Poll::Ready(read.map_err(|error| self.reason(error)))
    }
}

impl AsyncWrite for Quic {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.unsent.is_some() {
            self.fit_send_window();
        }
        let written = ready!(AsyncWrite::poll_write(Pin::new(&mut self.send), cx, bytes));
        Poll::Ready(written.map_err(|error| self.reason(error)))
    }

    /// Does nothing: written bytes are sent without being asked for.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Closing::No = self.closing {
            self.send.finish()?;
            self.closing = Closing::Finished(Box::pin(self.send.stopped()));
        }
        let Closing::Finished(acknowledged) = &mut self.closing else { return Poll::Ready(Ok(())) };
        let result = ready!(acknowledged.as_mut().poll(cx));
        self.closing = Closing::Done;
        Poll::Ready(match result {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(io::ErrorKind::ConnectionReset.into()),
            Err(error) => Err(self.reason(error.into())),
        })
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        let connection = self.connection.clone();
        match (std::mem::replace(&mut self.closing, Closing::Done), Handle::try_current()) {
            (Closing::Finished(acknowledged), Ok(runtime)) => {
                runtime.spawn(async move {
                    // The connection ends in either case.
                    let _ = timeout(LINGER, acknowledged).await;
                    connection.close(DONE, b"");
                });
            }
            (Closing::Done, _) => connection.close(DONE, b""),
            _ => connection.close(DROPPED, b""),
        }
    }
}
