//! Syncs a file in a thread of its own, while more is written.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

pub(super) struct Syncer {
    /// None only while it is dropped.
    requests: Option<Sender<()>>,
    results: Receiver<io::Result<()>>,
    is_running: bool,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn new(file: Arc<File>) -> io::Result<Self> {
        let (requests, waiting) = channel::<()>();
        let (done, results) = channel();
        let work = move || {
            while waiting.recv().is_ok() && done.send(file.sync_data()).is_ok() {}
        };
        let thread = Some(Builder::new().name("sync".into()).spawn(work)?);
        Ok(Self { requests: Some(requests), results, is_running: false, thread })
    }

    /// Waits for the sync that runs, if there is one, and returns its result.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_running) {
            return Ok(());
        }
        self.results.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Starts to sync what was written before. None may run.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let requests = self.requests.as_ref().ok_or_else(ended)?;
        requests.send(()).map_err(|_| ended())?;
        self.is_running = true;
        Ok(())
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that syncs has ended")
}

/// Waits for the thread, which holds the file, and with it its lock.
impl Drop for Syncer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
