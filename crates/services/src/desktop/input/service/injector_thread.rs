//! A thread that injects events into a screen. A screen that does not respond blocks only this
//! thread.

use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::desktop::input::event::Event;
use crate::desktop::input::injector::{InjectError, Injector};

/// Capacity of the queue of batches.
const QUEUE_LENGTH: usize = 4;
/// How long the end of a session waits for the release of all keys and buttons, which takes less
/// than 1 ms unless the screen does not respond.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of notes in a session; further ones are dropped.
const MAX_NOTES: usize = 16;

/// The queue of the thread. Dropping it ends the thread, which releases all keys and buttons.
pub(super) type Batches = mpsc::Sender<Batch>;

/// Events to inject together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// How many events the client sent, including those that are not permitted.
    pub(super) count: u32,
    /// A note about them for the client.
    pub(super) note: Option<&'static str>,
}

impl Batch {
    /// The batch for a client that sends no keepalive while something is pressed.
    pub(super) fn release_all() -> Self {
        let note = Some("no event arrived for 2 s: all keys and buttons were released");
        Self { events: vec![Event::ReleaseAll], count: 0, note }
    }
}

/// The progress of the thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The number of processed events.
    pub(super) done: u64,
    /// Why events were not injected.
    pub(super) notes: Vec<String>,
    /// Why the screen was lost, if it was.
    pub(super) lost: Option<String>,
}

/// Receives the progress of the thread.
///
/// Dropping it waits until the thread has released everything, because the process may exit next,
/// and pressed keys would stay pressed. [`Batches`] must be dropped before.
pub(super) struct ProgressReceiver {
    progress: watch::Receiver<Progress>,
    /// The number of notes that were taken.
    taken: usize,
    /// Its sender is dropped at the end of the thread.
    thread: std::sync::mpsc::Receiver<()>,
}

/// A running thread.
pub(super) struct InjectorThread {
    batches: Batches,
    progress: ProgressReceiver,
}

impl InjectorThread {
    /// Starts the thread, and waits until `open` has opened its screen there.
    ///
    /// # Errors
    /// The reason in one line.
    pub(super) async fn start<I: Injector + 'static>(
        open: impl FnOnce() -> Result<I, String> + Send + 'static,
        open_timeout: Duration,
    ) -> Result<Self, String> {
        let (batches, received) = mpsc::channel(QUEUE_LENGTH);
        let (reporter, progress) = watch::channel(Progress::default());
        let (opened, ready) = oneshot::channel();
        let (alive, ended) = std::sync::mpsc::channel();
        let body = move || {
            let _alive: std::sync::mpsc::Sender<()> = alive;
            let (injector, result) = match open() {
                Ok(injector) => (Some(injector), Ok(())),
                Err(text) => (None, Err(text)),
            };
            // If `start` has timed out, the injector is dropped.
            let awaited = opened.send(result).is_ok();
            if let Some(injector) = injector.filter(|_| awaited) {
                inject_all(injector, received, &reporter);
            }
        };
        let thread = thread::Builder::new().name("input".into()).spawn(body);
        thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        match timeout(open_timeout, ready).await {
            Ok(Ok(Ok(()))) => Ok(Self {
                batches,
                progress: ProgressReceiver { progress, taken: 0, thread: ended },
            }),
            Ok(Ok(Err(text))) => Err(text),
            Ok(Err(_)) => Err("the thread of the screen failed".to_owned()),
            Err(_) => Err("the screen does not respond".to_owned()),
        }
    }

    pub(super) fn split(self) -> (Batches, ProgressReceiver) {
        (self.batches, self.progress)
    }
}

impl ProgressReceiver {
    /// Waits for progress. False if the thread has ended; its last progress can still be taken.
    pub(super) async fn changed(&mut self) -> bool {
        self.progress.changed().await.is_ok()
    }

    /// The current progress, with the notes since the last call.
    pub(super) fn take(&mut self) -> Progress {
        let mut progress = self.progress.borrow_and_update().clone();
        progress.notes.drain(..self.taken.min(progress.notes.len()));
        self.taken += progress.notes.len();
        progress
    }
}

impl Drop for ProgressReceiver {
    fn drop(&mut self) {
        let _ = self.thread.recv_timeout(RELEASE_TIMEOUT);
    }
}

/// Injects batches until their queue is closed or the screen is lost, and then drops the injector,
/// which releases everything, before the reporter.
fn inject_all<I: Injector>(
    mut injector: I,
    mut batches: mpsc::Receiver<Batch>,
    reporter: &watch::Sender<Progress>,
) {
    let mut notes = 0;
    while let Some(batch) = batches.blocking_recv() {
        let result = inject_batch(&mut injector, &batch, |note| {
            if notes < MAX_NOTES {
                notes += 1;
                reporter.send_modify(|progress| progress.notes.push(note));
            }
        });
        reporter.send_modify(|progress| {
            progress.done += u64::from(batch.count);
            progress.lost = result.err();
        });
        if reporter.borrow().lost.is_some() {
            break;
        }
    }
    drop(injector);
}

/// Injects a batch. An error means that the screen is lost.
fn inject_batch(
    injector: &mut impl Injector,
    batch: &Batch,
    mut note: impl FnMut(String),
) -> Result<(), String> {
    if let Some(text) = batch.note {
        note(text.to_owned());
    }
    let mut events = batch.events.iter();
    loop {
        let (result, last) = match events.next() {
            Some(event) => (injector.inject(*event), false),
            None => (injector.finish(), true),
        };
        match result {
            Ok(()) => {}
            Err(InjectError::Refused(text)) => note(text),
            Err(lost @ InjectError::Lost(_)) => return Err(lost.to_string()),
        }
        if last {
            return Ok(());
        }
    }
}
