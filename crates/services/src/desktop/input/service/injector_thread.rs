//! A thread that puts events into a screen: a screen that takes nothing holds up this thread alone.

use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::desktop::input::event::Event;
use crate::desktop::input::injector::{InjectError, Injector};

/// Batches that wait for the screen.
const WAITING: usize = 4;
/// How long whoever ends a session waits until everything was let go. That takes less than a millisecond,
/// unless the screen hangs.
const RELEASING: Duration = Duration::from_millis(500);
/// How many notes a session gets: more would be a flood.
const MAX_NOTES: usize = 16;

/// Where batches of events go. When it is dropped, everything is let go.
pub(super) type Batches = mpsc::Sender<Batch>;

/// Events to put in together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// How many the client sent: some may not be permitted.
    pub(super) count: u32,
    /// What the client is to know of them.
    pub(super) note: Option<&'static str>,
}

impl Batch {
    /// Something is down, and the client has fallen silent.
    pub(super) fn silence() -> Self {
        let note = Some("nothing was heard for a while: everything that was down was let go");
        Self { events: vec![Event::ReleaseAll], count: 0, note }
    }
}

/// How far the thread is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Events that are done with.
    pub(super) done: u64,
    /// Events that could not be put in, and why.
    pub(super) notes: Vec<String>,
    /// The screen is gone.
    pub(super) lost: Option<String>,
}

/// What the thread says of itself.
pub(super) struct Reports {
    progress: watch::Receiver<Progress>,
    /// Notes that were told.
    told: usize,
    /// Ends with the thread.
    thread: std::sync::mpsc::Receiver<()>,
}

/// The thread's two ends.
pub(super) struct InjectorThread {
    batches: Batches,
    reports: Reports,
}

impl InjectorThread {
    /// Starts the thread, and waits until `open` has opened its screen.
    ///
    /// # Errors
    /// One line that says why it was not opened.
    pub(super) async fn start<I: Injector + 'static>(
        open: impl FnOnce() -> Result<I, String> + Send + 'static,
        patience: Duration,
    ) -> Result<Self, String> {
        let (batches, received) = mpsc::channel(WAITING);
        let (reporter, progress) = watch::channel(Progress::default());
        let (opened, ready) = oneshot::channel();
        let (working, ended) = std::sync::mpsc::channel();
        let body = move || {
            let _working: std::sync::mpsc::Sender<()> = working;
            let (injector, result) = match open() {
                Ok(injector) => (Some(injector), Ok(())),
                Err(text) => (None, Err(text)),
            };
            // If nobody waits any more, the injector is dropped.
            let wanted = opened.send(result).is_ok();
            if let Some(injector) = injector.filter(|_| wanted) {
                work(injector, received, &reporter);
            }
        };
        let thread = thread::Builder::new().name("input".into()).spawn(body);
        thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        match timeout(patience, ready).await {
            Ok(Ok(Ok(()))) => {
                Ok(Self { batches, reports: Reports { progress, told: 0, thread: ended } })
            }
            Ok(Ok(Err(text))) => Err(text),
            Ok(Err(_)) => Err("the screen failed".to_owned()),
            Err(_) => Err("the screen does not answer".to_owned()),
        }
    }

    pub(super) fn split(self) -> (Batches, Reports) {
        (self.batches, self.reports)
    }
}

impl Reports {
    /// Waits for news; false once the thread has ended, whose last news are still to be taken.
    pub(super) async fn changed(&mut self) -> bool {
        self.progress.changed().await.is_ok()
    }

    /// The news, with the notes that were not taken before.
    pub(super) fn take(&mut self) -> Progress {
        let mut progress = self.progress.borrow_and_update().clone();
        progress.notes.drain(..self.told.min(progress.notes.len()));
        self.told += progress.notes.len();
        progress
    }
}

/// Whoever drops this has dropped the [`Batches`] before. The thread is waited for, because the process
/// may be about to exit, and what is down would stay down.
impl Drop for Reports {
    fn drop(&mut self) {
        let _ = self.thread.recv_timeout(RELEASING);
    }
}

/// Until the batches end or the screen does. Dropping the injector lets everything go; the end is told
/// after that.
fn work<I: Injector>(
    mut injector: I,
    mut batches: mpsc::Receiver<Batch>,
    reporter: &watch::Sender<Progress>,
) {
    let mut told = 0;
    while let Some(batch) = batches.blocking_recv() {
        let result = put(&mut injector, &batch, |note| {
            if told < MAX_NOTES {
                told += 1;
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

/// Puts a batch in; an error means that the screen is gone.
fn put(
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
