//! One message of an exchange: its head, its body while it arrives, and its trailers. The code is
//! the same for each carrier.

use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body, Bytes};
use hyper::header::HeaderMap;
use levada_session::ReceiveHalf;
use tokio::time::timeout;

use super::body::BodySender;
pub(super) use super::carrier::ExchangeError;
use super::carrier::{PartReceiver, PartSender};
use super::head::{HeadError, MAX_HEAD, put_fields};
use super::layout::{Part, Strategy};
use super::message::{Assembler, Piece, Stage};
use super::trailers::{Trailers, announced, encode_names};

/// The bytes of a body that are read and discarded when its reader has left, so that the session
/// can be used again.
const MAX_DISCARDED: usize = 256 * 1024;
/// How long such a rest may take, or an answer whose local client has left.
pub(super) const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the end of a stream may take to follow the end of its message. Until then it counts
/// against the streams of the client.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What is done with the rest of a body whose reader has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It is read and discarded, because the other direction of the exchange goes on.
    Any,
    /// It is read and discarded if it is short, so that the session can be used again.
    Short,
}

/// A head that is sent: its first line, and all its fields, also those that do not travel.
pub(super) struct Head {
    pub(super) line: String,
    pub(super) fields: HeaderMap,
}

/// Sends a message. What the body yields leaves at once.
pub(super) async fn send<B>(
    sender: &mut PartSender<'_>,
    head: Head,
    body: B,
) -> Result<(), ExchangeError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let layout = sender.layout();
    let only = body.is_end_stream();
    let names = if layout.trailers && !only { announced(&head.fields) } else { Vec::new() };
    if !names.is_empty() {
        sender.data(Part::Trailers, &encode_names(&names).into()).await?;
    }
    send_head(sender, head, only).await?;
    let trailers = send_body(sender, body).await?;
    let trailers = trailers.map(|fields| Trailers::of(&fields, &names).encode());
    if let Some(trailers) = trailers.filter(|bytes| !bytes.is_empty()) {
        sender.data(Part::Trailers, &trailers.into()).await?;
    }
    sender.finish(only).await
}

async fn send_head(
    sender: &mut PartSender<'_>,
    head: Head,
    only: bool,
) -> Result<(), ExchangeError> {
    let layout = sender.layout();
    let Head { line, mut fields } = head;
    super::head::strip(&mut fields);
    for (at, part) in layout.split(&mut fields).iter().enumerate() {
        let mut bytes = Vec::new();
        put_fields(&mut bytes, part);
        sender.head(Part::Fields(at), &bytes, only).await?;
    }
    let mut bytes = line.into_bytes();
    put_fields(&mut bytes, &fields);
    if bytes.len() > MAX_HEAD {
        return Err(HeadError("too long").into());
    }
    let part = if layout.strategy == Strategy::One { Part::Whole } else { Part::Head };
    sender.head(part, &bytes, only).await
}

/// Sends the body, and returns the trailers.
async fn send_body<B>(
    sender: &mut PartSender<'_>,
    mut body: B,
) -> Result<Option<HeaderMap>, ExchangeError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut flushed = false;
    while !body.is_end_stream() {
        let next = std::future::poll_fn(|cx| {
            let polled = Pin::new(&mut body).poll_frame(cx);
            if polled.is_pending() && !flushed {
                flushed = true;
                let _ = sender.flush();
            }
            polled
        });
        let Some(frame) = next.await else { break };
        let frame = frame.map_err(|error| ExchangeError::Body(error.to_string()))?;
        match frame.into_data() {
            Ok(data) => {
                sender.data(Part::Body, &data).await?;
                flushed = false;
            }
            Err(frame) => return Ok(frame.into_trailers().ok()),
        }
    }
    Ok(None)
}

/// A message that is being received.
pub(super) struct Incoming<'a> {
    receiver: PartReceiver<'a>,
    message: Assembler,
    /// Bytes of the body that came with the end of the head.
    first: Vec<u8>,
}

/// Waits for the next message and its head; None if the other side has sent its end. `begun`
/// becomes true with the first part that comes.
pub(super) async fn receive<'a>(
    mut receiver: PartReceiver<'a>,
    begun: &mut bool,
) -> Result<Option<(Vec<u8>, Incoming<'a>)>, ExchangeError> {
    let mut message = Assembler::new(receiver.layout());
    let mut first = Vec::new();
    while message.stage == Stage::Head {
        match receiver.next().await? {
            Some(piece) => {
                *begun = true;
                first = message.add(piece)?;
            }
            None if message.has_begun() => return Err(ExchangeError::Ended(String::new())),
            None => return Ok(None),
        }
    }
    if message.stage == Stage::Body
        && first.is_empty()
        && let Some(piece) = receiver.next_now().await?
    {
        first = message.add(piece)?;
    }
    let head = message.head()?;
    Ok(Some((head, Incoming { receiver, message, first })))
}

/// Waits until the other side has ended a stream whose message is complete. Dropping the stream
/// earlier would reset it, and a reset overtakes the last messages of this side: the other side
/// would take a complete exchange for one that was cut off.
pub(super) async fn wait_for_end(receive: &mut ReceiveHalf) {
    // The exchange is complete: a failure does not change it, and the stream, which the caller
    // drops next, takes no more data.
    let _ = timeout(END_TIMEOUT, receive.receive(0)).await;
}

impl Incoming<'_> {
    /// Whether the message has no body.
    pub(super) fn is_over(&self) -> bool {
        self.message.stage == Stage::Over
    }

    /// The names of the trailers that may follow, as a value of the field Trailer.
    pub(super) fn trailer_names(&self) -> Result<Vec<u8>, HeadError> {
        self.message.trailer_names().map(|names| encode_names(&names))
    }

    /// Passes body and trailers to `to`, and returns when the message is complete.
    ///
    /// # Errors
    /// [`ExchangeError::Abandoned`] if no reader is left and the rest is more than `rest` allows.
    pub(super) async fn pass_body(
        mut self,
        to: BodySender,
        rest: Rest,
    ) -> Result<(), ExchangeError> {
        let mut data = std::mem::take(&mut self.first);
        while to.send(data).await {
            if self.is_over() {
                let trailers = self.message.trailers()?;
                to.end(trailers).await;
                return Ok(());
            }
            let piece = tokio::select! {
                piece = self.receiver.next() => piece?,
                () = to.closed() => break,
            };
            data = self.add(piece)?;
        }
        match (rest, &self.receiver) {
            (Rest::Any, _) => self.discard(usize::MAX).await,
            (Rest::Short, PartReceiver::Stream { .. }) => Err(ExchangeError::Abandoned),
            (Rest::Short, PartReceiver::Path { .. }) => {
                let discarded = timeout(DISCARD_TIMEOUT, self.discard(MAX_DISCARDED)).await;
                discarded.unwrap_or(Err(ExchangeError::Abandoned))
            }
        }
    }

    fn add(&mut self, piece: Option<Piece>) -> Result<Vec<u8>, ExchangeError> {
        let piece = piece.ok_or(ExchangeError::Ended(String::new()))?;
        Ok(self.message.add(piece)?)
    }

    /// Reads the rest, at most this many bytes.
    async fn discard(mut self, most: usize) -> Result<(), ExchangeError> {
        let mut discarded = 0;
        while !self.is_over() {
            let piece = self.receiver.next().await?;
            discarded += self.add(piece)?.len();
            if discarded > most {
                return Err(ExchangeError::Abandoned);
            }
        }
        Ok(())
    }
}
