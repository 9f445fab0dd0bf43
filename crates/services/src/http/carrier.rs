//! What carries the messages of an exchange: the contexts of a session with middleboxes, or a
//! stream of an ordinary session.

use hyper::body::Bytes;
use levada_contexts::{Path, PathError, PathEvent, PathSession, Received, Right};
use levada_session::{ReceiveHalf, SendHalf, StreamError};
use thiserror::Error;

use super::head::HeadError;
use super::layout::{Kind, Layout, Part};
use super::message::{MAX_CONTENT, Piece, decode, tag};

/// Why an exchange failed. A session with middleboxes cannot go on after it.
#[derive(Debug, Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error("the path has not the contexts of HTTP")]
    Layout,
    #[error("the other side has ended the session{0}")]
    Ended(String),
    #[error("the body was cut off: {0}")]
    Body(String),
    #[error("the other side sent a body where there can be none")]
    UnexpectedBody,
    #[error("the local client has left")]
    Abandoned,
    #[error("the local client sends or takes a body too slowly")]
    TooSlow,
}

/// Sends the parts of messages of one kind.
pub(super) enum PartSender<'a> {
    Path { session: &'a PathSession, path: &'a Path, layout: Layout, kind: Kind },
    Stream(&'a mut SendHalf),
}

/// Receives the parts of messages of one kind.
pub(super) enum PartReceiver<'a> {
    Path { session: &'a PathSession, layout: Layout, kind: Kind },
    Stream { receive: &'a mut ReceiveHalf, next: Option<Piece> },
}

impl<'a> PartSender<'a> {
    pub(super) fn path(
        session: &'a PathSession,
        path: &'a Path,
        kind: Kind,
    ) -> Result<Self, ExchangeError> {
        let layout = Layout::of(path).ok_or(ExchangeError::Layout)?;
        Ok(Self::Path { session, path, layout, kind })
    }

    pub(super) fn layout(&self) -> Layout {
        match self {
            Self::Path { layout, .. } => *layout,
            Self::Stream(_) => Layout::STREAM,
        }
    }

    /// Sends the head, or the part of it that a context carries. `only`: nothing follows in this
    /// message.
    pub(super) async fn head(
        &mut self,
        part: Part,
        data: &[u8],
        only: bool,
    ) -> Result<(), ExchangeError> {
        match self {
            Self::Path { session, path, layout, kind } => {
                let context = layout.context(*kind, part).ok_or(ExchangeError::Layout)?;
                if part == Part::Whole {
                    session.write(context, data).await?;
                    return Ok(session.write(context, b"\r\n").await?);
                }
                // Fields can be added only where there is a message.
                let row = path.contexts.get(usize::from(context) - 1);
                let may_grow = row.is_some_and(|row| row.rights.contains(&Right::Write));
                if data.is_empty() && !may_grow {
                    return Ok(());
                }
                session.write(context, data).await?;
                session.end(context)?;
            }
            Self::Stream(send) => {
                let tag = if only { tag::HEAD_ONLY } else { tag::HEAD };
                send_message(send, tag, data).await?;
            }
        }
        Ok(())
    }

    /// Sends names of trailers, a part of the body, or trailers.
    pub(super) async fn data(&mut self, part: Part, data: &Bytes) -> Result<(), ExchangeError> {
        match self {
            Self::Path { session, layout, kind, .. } => {
                let whole = layout.context(*kind, Part::Whole).filter(|_| part == Part::Body);
                let context = layout.context(*kind, part).or(whole).ok_or(ExchangeError::Layout)?;
                session.write(context, data).await?;
            }
            Self::Stream(send) => {
                let tag = if part == Part::Trailers { tag::TRAILERS } else { tag::BODY };
                for content in data.chunks(MAX_CONTENT) {
                    send_message(send, tag, content).await?;
                }
            }
        }
        Ok(())
    }

    /// No more of the body is there for now: what was sent must not wait for it.
    pub(super) fn flush(&mut self) -> Result<(), ExchangeError> {
        if let Self::Path { session, layout, kind, .. } = self {
            if let Some(body) = layout.context(*kind, Part::Body) {
                session.begin(body)?;
            }
            session.flush()?;
        }
        Ok(())
    }

    /// Ends the message. `only`: it has nothing but a head.
    pub(super) async fn finish(&mut self, only: bool) -> Result<(), ExchangeError> {
        match self {
            Self::Path { session, .. } => session.finish()?,
            Self::Stream(send) => {
                if !only {
                    send.send(&[tag::END]).await?;
                }
                send.finish().await?;
            }
        }
        Ok(())
    }
}

async fn send_message(send: &mut SendHalf, tag: u8, content: &[u8]) -> Result<(), StreamError> {
    send.write(&[tag], false).await?;
    send.write(content, true).await
}

impl<'a> PartReceiver<'a> {
    pub(super) fn path(
        session: &'a PathSession,
        path: &Path,
        kind: Kind,
    ) -> Result<Self, ExchangeError> {
        let layout = Layout::of(path).ok_or(ExchangeError::Layout)?;
        Ok(Self::Path { session, layout, kind })
    }

    pub(super) fn stream(receive: &'a mut ReceiveHalf) -> Self {
        Self::Stream { receive, next: None }
    }

    pub(super) fn layout(&self) -> Layout {
        match self {
            Self::Path { layout, .. } => *layout,
            Self::Stream { .. } => Layout::STREAM,
        }
    }

    /// The next piece; None if the other side has sent its end.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>, ExchangeError> {
        match self {
            Self::Path { session, layout, kind } => loop {
                let Some(event) = session.next().await? else { return Ok(None) };
                if let Some(piece) = piece_of(event, *layout, *kind)? {
                    return Ok(Some(piece));
                }
            },
            Self::Stream { receive, next } => {
                if let Some(piece) = next.take() {
                    return Ok(Some(piece));
                }
                let Some(message) = receive.receive(MAX_CONTENT + 1).await? else {
                    return Ok(None);
                };
                let (first, second) = decode(message)?;
                *next = second;
                Ok(Some(first))
            }
        }
    }

    /// As [`Self::next`], if a piece is there already: the end of an exchange without a body
    /// arrives together with the end of its head.
    pub(super) async fn next_now(&mut self) -> Result<Option<Piece>, ExchangeError> {
        tokio::select! {
            biased;
            piece = self.next() => piece,
            () = std::future::ready(()) => Ok(None),
        }
    }
}

fn piece_of(event: PathEvent, layout: Layout, kind: Kind) -> Result<Option<Piece>, ExchangeError> {
    let PathEvent::Received(received) = event else { return Ok(None) };
    match received {
        Received::Data { context, data, end, .. } => {
            let part = layout.part(kind, context);
            let part = part.ok_or(HeadError("a context of the other direction"))?;
            Ok(Some(Piece::Data { part, data, end }))
        }
        Received::Exchange { .. } => Ok(Some(Piece::End)),
        Received::Error(reason) => {
            Err(ExchangeError::Ended(format!(": {}", String::from_utf8_lossy(&reason))))
        }
        Received::Control(_) => Err(ExchangeError::Ended(" with an unexpected message".to_owned())),
        Received::Finished => Ok(None),
    }
}
