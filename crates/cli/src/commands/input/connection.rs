//! Sends events at once, as long as the node keeps up; takes back how far it is.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use levada_node::client::ClientError;
use levada_service::stdio::{Inbox, Message, ReceiveError, StdioError};
use levada_services::desktop::input::event::{decode_count, encode};
use levada_services::desktop::input::{Event, Outbox};
use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::source::{Events, Source};
use crate::attach::Signals;
use crate::failure::{Failure, Outcome, PROTOCOL, UNREACHABLE};
use crate::output::{note, plain};

/// How often the node hears of what is held: it lets go after two seconds of silence.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
/// How long the node may take for what is on its way when the end has come.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// What the three directions share.
#[derive(Default)]
struct Shared {
    outbox: RefCell<Outbox>,
    /// There is something to send, more room for it, or no more to come.
    changed: Notify,
    finished: Cell<bool>,
}

/// Sends what `events` gives until it ends, a signal comes, or the session ends.
/// What `events` has not given when the session is lost stays there.
pub(super) async fn run(stream: Stream, events: &mut Events, signals: &mut Signals) -> Outcome {
    let (mut send, receive) = stream.split();
    let (shared, ended) = (Shared::default(), Cell::new(0));
    let here = async {
        if let Some(source) = &mut events.source {
            ended.set(shared.feed(source, signals).await?);
        }
        // Dropped when it ends: keyboard and pointer are back at once, whatever the connection does.
        *events = Events::default();
        shared.finish()?;
        sleep(LAST_EVENTS).await;
        Err(Failure::new(UNREACHABLE, "the node did not take the last events"))
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
        outcome = here => outcome,
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

    /// Takes what comes from the hands: gives the exit code once they have let go.
    async fn feed(&self, source: &mut Source, signals: &mut Signals) -> Outcome {
        let mut pulse = interval(SIGN_OF_LIFE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = source.next() => match event? {
                    Some(event) => self.push(event)?,
                    None => return Ok(0),
                },
                _ = pulse.tick() => {
                    if self.outbox.borrow().is_held() {
                        self.push(Event::StillHeld)?;
                    }
                }
                code = signals.end() => return Ok(code),
            }
        }
    }

    /// Sends what waits; ends by itself only if the stream does.
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
        // A sending half that is dropped would end the session before it says how it ended.
        pending().await
    }

    /// Takes what the node says, until it says that the session has ended.
    async fn receive(&self, mut stream: ReceiveHalf) -> Outcome {
        let mut inbox = Inbox::new();
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
