//! A body that arrives in parts.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc;

/// Parts that may wait for the reader of a body.
const PARTS: usize = 4;

/// A part of a body, or the error that ended it.
pub(super) type Part = Result<Bytes, io::Error>;

/// A body whose parts come from a channel. It is complete when the channel ends after the last part; an error ends it early.
pub struct ChannelBody(mpsc::Receiver<Option<Part>>, bool);

/// The other end of a [`ChannelBody`].
pub(super) struct BodySender(mpsc::Sender<Option<Part>>);

/// A body and its sender.
pub(super) fn channel() -> (BodySender, ChannelBody) {
    let (sender, receiver) = mpsc::channel(PARTS);
    (BodySender(sender), ChannelBody(receiver, false))
}

impl BodySender {
    /// Sends a part; false if no reader is left.
    pub(super) async fn send(&self, data: Vec<u8>) -> bool {
        data.is_empty() || self.0.send(Some(Ok(data.into()))).await.is_ok()
    }

    /// Ends the body. Without this, it is cut off.
    pub(super) async fn end(self) {
        let _ = self.0.send(None).await;
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.1 {
            return Poll::Ready(None);
        }
        self.0.poll_recv(cx).map(|part| match part {
            Some(Some(part)) => Some(part.map(Frame::data)),
            Some(None) => {
                self.1 = true;
                None
            }
            // The sender has gone without an end: the message is not complete.
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.1
    }
}
