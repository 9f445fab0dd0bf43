//! The service of type `input`: puts the events of a client into this node's screen.

mod config;
mod injector_thread;

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_service::stdio::{FAILURE_EXIT, Inbox, Message, StdioError};
use levada_service::{
    DefinitionError, Invocation, Running, Service, ServiceError, ServiceType, exit, fail,
};
use levada_session::{ReceiveHalf, SendHalf, Stream};
use tokio::select;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::budget::Budget;
use super::event::{decode, encode_count};
use super::held::Held;
use super::x11::X11;
use crate::desktop::screen::Screen;

use config::{Limits, Options};
use injector_thread::{Batch, Batches, InjectorThread, Progress, Reports};

/// How long the screen may take to be there.
const OPENING: Duration = Duration::from_secs(10);
/// So many events are put in before the client is told.
const TELL: u64 = 32;
/// How long something stays down without a sign of life from the client: a link that stalls shall not
/// let a key repeat for as long as it takes to notice.
const SILENCE: Duration = Duration::from_secs(2);
/// How often the stream is looked at while a screen takes nothing.
const PULSE: Duration = Duration::from_secs(1);

/// The type `input`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("input", |definition, _, options: Options| {
        Ok(Arc::new(Input::new(&definition.name, options)?))
    })
}

/// The service of type `input`.
struct Input {
    screen: Screen,
    limits: Limits,
}

impl Input {
    /// The service called `name`.
    fn new(name: &str, options: Options) -> Result<Self, DefinitionError> {
        let (choice, limits) = options.split();
        Ok(Self { screen: Screen::of_service(name, choice)?, limits })
    }

    async fn serve(&self, stream: Stream) -> Result<(), ServiceError> {
        let screen = self.screen.clone();
        match InjectorThread::start(move || X11::open(&screen), OPENING).await {
            Ok(thread) => run(thread, self.limits, stream).await,
            Err(text) => fail(stream, ServiceError::Failed(text)).await,
        }
    }
}

/// Everything happens in this one future: dropping it ends the thread, which releases what is pressed.
async fn run(thread: InjectorThread, limits: Limits, stream: Stream) -> Result<(), ServiceError> {
    let (mut send, mut receive) = stream.split();
    let (batches, mut progress) = thread.split();
    let feed = feed(&mut receive, batches, limits);
    let lost = select! {
        ended = feed => return Err(ended),
        told = tell(&mut send, &mut progress) => told?,
    };
    let Some(text) = lost else { return Ok(exit(send, receive, 0).await?) };
    send.send(&Message::Failure(&text).to_bytes()).await?;
    exit(send, receive, FAILURE_EXIT).await?;
    Err(ServiceError::Failed(text))
}

/// Takes the client's messages until it goes away: returns why. Once its input has ended, the batches
/// end, and with them everything.
async fn feed(receive: &mut ReceiveHalf, batches: Batches, limits: Limits) -> ServiceError {
    let mut inbox = Inbox::new();
    let mut budget = Budget::new(limits.rate, limits.burst());
    let mut held = Held::default();
    loop {
        let patience = if held.is_any() { SILENCE } else { Duration::MAX };
        let batch = match timeout(patience, inbox.next(receive)).await {
            Err(_) => Batch::silence(),
            Ok(Ok(Some(Message::Data(bytes)))) => match decode(bytes) {
                Ok(events) => limits.permitted(events),
                Err(error) => return ServiceError::Failed(format!("the client sent {error}")),
            },
            Ok(Ok(Some(Message::Window(_)))) => continue,
            Ok(Ok(Some(Message::End))) => break,
            Ok(Ok(Some(_))) => return StdioError::Direction.into(),
            Ok(Ok(None)) => return ServiceError::Gone,
            Ok(Err(error)) => return error.into(),
        };
        batch.events.iter().for_each(|event| held.note(*event));
        let wait = budget.take(batch.count, Instant::now());
        // Not for nothing: the timer is good to a millisecond only.
        if !wait.is_zero() {
            sleep(wait).await;
        }
        if batches.send(batch).await.is_err() {
            // The thread has ended, and reports why.
            break;
        }
    }
    drop(batches);
    pending().await
}

/// Tells the client how far its events are, until the thread has ended: why, if it lost the screen.
async fn tell(send: &mut SendHalf, progress: &mut Reports) -> Result<Option<String>, ServiceError> {
    let mut told: u64 = 0;
    let mut pulse = interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let ended = select! {
            changed = progress.changed() => !changed,
            // An empty part sends nothing, and fails if the stream has ended.
            _ = pulse.tick() => {
                send.write(b"", false).await?;
                continue;
            }
        };
        let Progress { done, notes, lost } = progress.take();
        for note in notes {
            send.send(&Message::Error(format!("{note}\n").as_bytes()).to_bytes()).await?;
        }
        if done >= told + TELL || (ended && done > told) {
            send.send(&Message::Data(&encode_count(done)).to_bytes()).await?;
            told = done;
        }
        if ended {
            return Ok(lost);
        }
    }
}

impl Service for Input {
    fn category(&self) -> &'static str {
        "input"
    }

    fn run<'a>(&'a self, _: Invocation, stream: Stream) -> Running<'a> {
        Box::pin(self.serve(stream))
    }
}

#[cfg(test)]
mod tests;
