//! A body that arrives in parts.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::HeaderMap;
use tokio::sync::mpsc;

use super::client::ClientWaits;

/// Parts that may wait for the reader of a body.
const PARTS: usize = 4;

/// A part of a body, or its end.
enum Part {
    Data(Bytes),
    End(HeaderMap),
}

/// A body whose parts come from a channel. It is complete when the sender has ended it; without
/// that it ends with an error.
pub struct ChannelBody {
    /// None if the body has ended.
    parts: Option<mpsc::Receiver<Part>>,
}

/// The other end of a [`ChannelBody`].
pub(super) struct BodySender {
    parts: mpsc::Sender<Part>,
    /// Notes when the reader lets it wait.
    waits: Option<ClientWaits>,
}

/// A body and its sender.
pub(super) fn channel() -> (BodySender, ChannelBody) {
    let (sender, receiver) = mpsc::channel(PARTS);
    (BodySender { parts: sender, waits: None }, ChannelBody { parts: Some(receiver) })
}

impl BodySender {
    /// The same sender, whose waits for the reader are those of `waits`.
    pub(super) fn with_waits(self, waits: ClientWaits) -> Self {
        Self { waits: Some(waits), ..self }
    }

    /// Sends a part; false if no reader is left.
    pub(super) async fn send(&self, data: Vec<u8>) -> bool {
        if data.is_empty() {
            return true;
        }
        if let Some(waits) = self.waits.as_ref().filter(|_| self.parts.capacity() == 0) {
            waits.wait();
        }
        let length = data.len();
        let sent = self.parts.send(Part::Data(data.into())).await.is_ok();
        if let Some(waits) = &self.waits {
            waits.advance(length);
        }
        sent
    }

    /// Waits until no reader is left.
    pub(super) async fn closed(&self) {
        self.parts.closed().await;
    }

    /// Ends the body. Without this, it is cut off.
    pub(super) async fn end(self, trailers: HeaderMap) {
        let _ = self.parts.send(Part::End(trailers)).await;
    }
}

impl ChannelBody {
    /// A body without bytes.
    pub(super) fn empty() -> Self {
        Self { parts: None }
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(parts) = &mut self.parts else { return Poll::Ready(None) };
        parts.poll_recv(cx).map(|part| match part {
            Some(Part::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Part::End(trailers)) => {
                self.parts = None;
                (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)))
            }
            // The sender has gone without an end: the message is not complete.
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}
