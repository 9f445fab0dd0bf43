//! Sends events as soon as the node has acknowledged enough of the earlier ones.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use levada_client::ClientError;
use levada_service::stdio::{Message, MessageReader, ReceiveError, StdioError};
use levada_services::desktop::input::event::{decode_count, encode};
use levada_services::desktop::input::{Event, Outbox};
use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::source::{Events, Source};
use crate::attach::Signals;
use crate::failure::{Failure, Outcome, PROTOCOL, UNREACHABLE};
use crate::output::{note, plain};

/// How often a keepalive is sent while something is pressed: the node releases everything after two
/// seconds of silence.
const KEEPALIVE: Duration = Duration::from_millis(500);
/// How long the node may take to process the last events.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// State that the event source, the sender and the receiver share.
#[derive(Default)]
struct Shared {
    outbox: RefCell<Outbox>,
    /// Notified when there is an event to send, room to send one, or no further event.
    changed: Notify,
    finished: Cell<bool>,
}

/// Sends the events of `events` until they end, a signal arrives, or the session ends.
/// Events that were not read when the session is lost remain in `events`.
pub(super) async fn run(stream: Stream, events: &mut Events, signals: &mut Signals) -> Outcome {
    let (mut send, receive) = stream.split();
    let shared = Shared::default();
    let ended = Cell::new(0);
    let local = async {
        if let Some(source) = &mut events.source {
            ended.set(shared.feed(source, signals).await?);
        }
        // Dropping the source releases keyboard and pointer at once, whatever the connection does.
        *events = Events::default();
        shared.finish()?;
        sleep(DRAIN_TIMEOUT).await;
        Err(Failure::new(UNREACHABLE, "the node did not process the last events"))
    };
    tokio::select! {
        biased;
        outcome = shared.receive(receive) => match outcome? {
            0 => Ok(ended.get()),
            code => Ok(code),
        },
        error = shared.write(&mut send) => match error {
            Ok(never) => match never {},
            Err(error) => Err(ClientError::from(error).into()),
        },
        outcome = local => outcome,
    }
}

impl Shared {
    fn push(&self, event: Event) -> Result<(), Failure> {
        let pushed = self.outbox.borrow_mut().push(event);
        self.changed.notify_one();
        pushed.map_err(|error| Failure::new(UNREACHABLE, error))
    }

    fn finish(&self) -> Result<(), Failure> {
        self.finished.set(true);
        self.push(Event::ReleaseAll)
    }

    /// Queues the events of `source`; returns the exit code at its end, or at a signal.
    async fn feed(&self, source: &mut Source, signals: &mut Signals) -> Outcome {
        let mut keepalive = interval(KEEPALIVE);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = source.next() => match event? {
                    Some(event) => self.push(event)?,
                    None => return Ok(0),
                },
                _ = keepalive.tick() => {
                    if self.outbox.borrow().is_held() {
                        self.push(Event::StillHeld)?;
                    }
                }
                code = signals.end() => return Ok(code),
            }
        }
    }

    /// Sends queued events; returns only if the stream fails.
    async fn write(&self, stream: &mut SendHalf) -> Result<Infallible, StreamError> {
        loop {
            let events = self.outbox.borrow_mut().take();
            if !events.is_empty() {
                stream.send(&Message::Data(&encode(&events)).to_bytes()).await?;
            } else if self.finished.get() && self.outbox.borrow().is_empty() {
                break;
            } else {
                self.changed.notified().await;
            }
        }
        stream.send(&Message::End.to_bytes()).await?;
        // Dropping the sending half would end the session before its exit code arrives.
        pending().await
    }

    /// Handles the node's messages until the exit code.
    async fn receive(&self, mut stream: ReceiveHalf) -> Outcome {
        let mut inbox = MessageReader::new();
        loop {
            match inbox.next(&mut stream).await.map_err(lost)? {
                Some(Message::Data(bytes)) => {
                    let count = decode_count(bytes);
                    count.and_then(|count| self.outbox.borrow_mut().done(count)).map_err(broken)?;
                    self.changed.notify_one();
                }
                Some(Message::Error(text)) => {
                    for line in String::from_utf8_lossy(text).lines() {
                        note(format_args!("note: {}", plain(line)));
                    }
                }
                Some(Message::Failure(text)) => note(format_args!("levada: {text}")),
                Some(Message::Exit(code)) => return Ok(code),
                Some(Message::End | Message::Window(_)) => {
                    return Err(broken(StdioError::Direction));
                }
                None => {
                    return Err(Failure::new(PROTOCOL, "the session ended without an exit code"));
                }
            }
        }
    }
}

fn lost(error: ReceiveError) -> Failure {
    match error {
        ReceiveError::Stream(error) => ClientError::from(error).into(),
        ReceiveError::Message(error) => broken(error),
    }
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::new(PROTOCOL, format_args!("the service sent {error}"))
}
