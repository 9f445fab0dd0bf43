//! One message of an exchange: its head, and its body while it arrives.

use hyper::body::{Body, Bytes};
use levada_session::contexts::{Path, PathError, PathEvent, PathSession, Purpose, Received};
use thiserror::Error;

use super::body::BodySender;
use super::head::{HeadError, MAX_HEAD};

/// Why an exchange failed. The session cannot go on after it.
#[derive(Debug, Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error("the path lacks a context for a head or a body")]
    Layout,
    #[error("the other side has ended the session{0}")]
    Ended(String),
    #[error("the body was cut off: {0}")]
    Body(String),
}

/// The contexts of a message in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageContexts {
    head: u8,
    body: u8,
}

impl MessageContexts {
    /// Those of requests.
    pub(super) fn of_requests(path: &Path) -> Result<Self, ExchangeError> {
        Self::of(path, Purpose::RequestHead, Purpose::RequestBody)
    }

    /// Those of responses.
    pub(super) fn of_responses(path: &Path) -> Result<Self, ExchangeError> {
        Self::of(path, Purpose::ResponseHead, Purpose::ResponseBody)
    }

    fn of(path: &Path, head: Purpose, body: Purpose) -> Result<Self, ExchangeError> {
        let head = path.context(head).ok_or(ExchangeError::Layout)?;
        let body = path.context(body).ok_or(ExchangeError::Layout)?;
        Ok(Self { head, body })
    }
}

/// Sends a message. What the body yields leaves at once.
pub(super) async fn send<B>(
    session: &PathSession,
    contexts: MessageContexts,
    head: &[u8],
    body: B,
) -> Result<(), ExchangeError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    session.write(contexts.head, head).await?;
    session.end(contexts.head)?;
    send_body(session, contexts, body).await?;
    session.finish()?;
    Ok(())
}

async fn send_body<B>(
    session: &PathSession,
    contexts: MessageContexts,
    mut body: B,
) -> Result<(), ExchangeError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut flushed = false;
    while !body.is_end_stream() {
        let next = std::future::poll_fn(|cx| {
            let polled = std::pin::Pin::new(&mut body).poll_frame(cx);
            if polled.is_pending() && !flushed {
                // Nothing more for now: what was written must not wait for it.
                flushed = true;
                let _ = session.flush();
            }
            polled
        });
        let Some(frame) = next.await else { break };
        let frame = frame.map_err(|error| ExchangeError::Body(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            session.write(contexts.body, &data).await?;
            flushed = false;
        }
    }
    Ok(())
}

/// A message that is being received.
pub(super) struct Incoming<'a> {
    session: &'a PathSession,
    contexts: MessageContexts,
    /// Bytes of the body that came with the end of the head.
    first: Option<Vec<u8>>,
    /// The exchange has ended.
    over: bool,
}

/// Waits for the next message and its head; None if the other side has sent its end.
pub(super) async fn receive(
    session: &PathSession,
    contexts: MessageContexts,
) -> Result<Option<(Vec<u8>, Incoming<'_>)>, ExchangeError> {
    let mut head = Vec::new();
    let mut begun = false;
    loop {
        let (ended, first, over) = match session.next().await? {
            None if begun => return Err(ExchangeError::Ended(String::new())),
            None => return Ok(None),
            Some(PathEvent::Received(Received::Data { context, data, end, .. })) => {
                begun = true;
                if context == contexts.head {
                    head.extend_from_slice(&data);
                    (end, None, false)
                } else if context == contexts.body {
                    // An answer of a middlebox has no end of the head.
                    (true, Some(data), false)
                } else {
                    return Err(HeadError("a context of the other direction").into());
                }
            }
            Some(PathEvent::Received(Received::Exchange { .. })) => (true, None, true),
            Some(PathEvent::Received(Received::Error(reason))) => {
                return Err(ended_by(&reason));
            }
            Some(PathEvent::Received(Received::Control(_))) => {
                return Err(ExchangeError::Ended(" with an unexpected message".to_owned()));
            }
            Some(_) => continue,
        };
        if head.len() > MAX_HEAD {
            return Err(HeadError("too long").into());
        }
        if ended {
            return Ok(Some((head, Incoming { session, contexts, first, over })));
        }
    }
}

fn ended_by(reason: &[u8]) -> ExchangeError {
    ExchangeError::Ended(format!(": {}", String::from_utf8_lossy(reason)))
}

impl Incoming<'_> {
    /// Whether the message is complete.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Passes the body to `to`, and returns when the exchange has ended. If no reader is left, the rest is discarded.
    pub(super) async fn pass_body(mut self, to: BodySender) -> Result<(), ExchangeError> {
        let mut wanted = to.send(self.first.take().unwrap_or_default()).await;
        while !self.over {
            match self.session.next().await? {
                Some(PathEvent::Received(Received::Data { context, data, .. }))
                    if context == self.contexts.body =>
                {
                    wanted = wanted && to.send(data).await;
                }
                Some(PathEvent::Received(Received::Exchange { .. })) => self.over = true,
                Some(PathEvent::Received(Received::Error(reason))) => {
                    return Err(ended_by(&reason));
                }
                None => return Err(ExchangeError::Ended(String::new())),
                Some(PathEvent::Received(Received::Data { .. })) => {
                    return Err(HeadError("data of a head after its end").into());
                }
                Some(_) => {}
            }
        }
        to.end().await;
        Ok(())
    }
}
