//! The service of type `input`: injects the events of a client into this node's screen.

mod config;
mod injector_thread;

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::Params;
use levada_service::stdio::{FAILURE_EXIT, Message, MessageReader, StdioError};
use levada_service::{
    DefinitionError, Over, Prepared, Refused, Service, ServiceError, ServiceType, check_none, exit,
    fail,
};
use levada_session::{ReceiveHalf, SendHalf, Stream};
use tokio::select;
use tokio::time::{sleep, timeout};

use super::event::{decode, encode_count};
use super::pressed::Pressed;
use super::rate_limiter::RateLimiter;
use super::x11::X11;
use crate::desktop::screen::Screen;

use config::{Limits, Options};
use injector_thread::{Batch, Batches, InjectorThread, Progress, ProgressReceiver};

/// How long connecting to the screen may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The client receives a report after this many processed events.
const REPORT_INTERVAL: u64 = 32;
/// Without a message for this time, all keys and buttons are released. Otherwise a key would repeat
/// until the connection detects that its peer is lost.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);

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
        let (screen, limits) = options.split();
        Ok(Self { screen: Screen::of_service(name, screen)?, limits })
    }
}

async fn serve(screen: Screen, limits: Limits, stream: Stream) -> Result<(), ServiceError> {
    match InjectorThread::start(move || X11::open(&screen), OPEN_TIMEOUT).await {
        Ok(thread) => run(thread, limits, stream).await,
        Err(text) => fail(stream, ServiceError::Failed(text)).await,
    }
}

/// Runs the session to its end. Dropping the future ends the thread, which releases all keys and
/// buttons.
async fn run(thread: InjectorThread, limits: Limits, stream: Stream) -> Result<(), ServiceError> {
    let (mut send, mut receive) = stream.split();
    let (batches, mut progress) = thread.split();
    let lost = select! {
        error = receive_events(&mut receive, batches, limits) => return Err(error),
        ended = send_progress(&mut send, &mut progress) => ended?,
    };
    let Some(text) = lost else { return Ok(exit(send, receive, 0).await?) };
    send.send(&Message::Failure(&text).to_bytes()).await?;
    exit(send, receive, FAILURE_EXIT).await?;
    Err(ServiceError::Failed(text))
}

/// Passes the client's events to the thread, and returns the error that ends the session. After the
/// end of the input it drops `batches`, which ends the thread, and remains pending:
/// [`send_progress`] then ends the session.
async fn receive_events(
    receive: &mut ReceiveHalf,
    batches: Batches,
    limits: Limits,
) -> ServiceError {
    let mut inbox = MessageReader::new();
    let mut limiter = RateLimiter::new(limits.rate, limits.burst());
    let mut pressed = Pressed::default();
    loop {
        let keepalive = if pressed.any() { KEEPALIVE_TIMEOUT } else { Duration::MAX };
        let batch = match timeout(keepalive, inbox.next(receive)).await {
            Err(_) => Batch::release_all(),
            Ok(Ok(Some(Message::Data(bytes)))) => match decode(bytes) {
                Ok(events) => limits.filter(events),
                Err(error) => return ServiceError::Failed(format!("the client sent {error}")),
            },
            Ok(Ok(Some(Message::Window(_)))) => continue,
            Ok(Ok(Some(Message::End))) => break,
            Ok(Ok(Some(_))) => return StdioError::Direction.into(),
            Ok(Ok(None)) => return ServiceError::Gone,
            Ok(Err(error)) => return error.into(),
        };
        batch.events.iter().for_each(|event| pressed.update(*event));
        let wait = limiter.take(batch.count, Instant::now());
        // The timer has a resolution of 1 ms, so a wait of zero would delay the batch.
        if !wait.is_zero() {
            sleep(wait).await;
        }
        if batches.send(batch).await.is_err() {
            // The thread has ended; `send_progress` returns the reason.
            break;
        }
    }
    drop(batches);
    pending().await
}

/// Reports the progress of the thread to the client until the thread has ended. Returns the reason
/// if it lost the screen. Fails if the stream is lost, also while the screen accepts no events.
async fn send_progress(
    send: &mut SendHalf,
    progress: &mut ProgressReceiver,
) -> Result<Option<String>, ServiceError> {
    let mut reported: u64 = 0;
    // While the thread waits for the screen, `receive_events` does not read, and would not detect a
    // lost stream.
    let mut closed = send.closed();
    loop {
        let ended = select! {
            changed = progress.changed() => !changed,
            error = &mut closed => return Err(error.into()),
        };
        let Progress { done, notes, lost } = progress.take();
        for note in notes {
            send.send(&Message::Error(format!("{note}\n").as_bytes()).to_bytes()).await?;
        }
        if done >= reported + REPORT_INTERVAL || (ended && done > reported) {
            send.send(&Message::Data(&encode_count(done)).to_bytes()).await?;
            reported = done;
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

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        check_none(params)?;
        let screen = self.screen.clone();
        let limits = self.limits;
        Ok(Prepared::stream(move |_, stream| serve(screen, limits, stream)))
    }
}

#[cfg(test)]
mod tests;
