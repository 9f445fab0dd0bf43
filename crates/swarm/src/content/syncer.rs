//! Syncs a file in a thread of its own, while more is written.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use crate::content::data_file::DataFile;
use crate::content::error::ContentError;

pub(super) struct Syncer {
    data: DataFile,
    /// None only while it is dropped.
    requests: Option<Sender<()>>,
    results: Receiver<Result<(), ContentError>>,
    is_running: bool,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn new(data: DataFile) -> Result<Self, ContentError> {
        let (requests, waiting) = channel::<()>();
        let (done, results) = channel();
        let synced = data.clone();
        let work = move || {
            while waiting.recv().is_ok() && done.send(synced.sync()).is_ok() {}
        };
        let thread = Builder::new().name("sync".into()).spawn(work);
        let thread = Some(thread.map_err(ContentError::file(data.path()))?);
        Ok(Self { data, requests: Some(requests), results, is_running: false, thread })
    }

    /// Waits for the sync that runs, if there is one, and returns its result.
    pub(super) fn wait(&mut self) -> Result<(), ContentError> {
        if !std::mem::take(&mut self.is_running) {
            return Ok(());
        }
        self.results.recv().unwrap_or_else(|_| Err(self.ended()))
    }

    /// Starts to sync what was written before. None may run.
    pub(super) fn begin(&mut self) -> Result<(), ContentError> {
        let sent = self.requests.as_ref().is_some_and(|requests| requests.send(()).is_ok());
        if !sent {
            return Err(self.ended());
        }
        self.is_running = true;
        Ok(())
    }

    fn ended(&self) -> ContentError {
        let error = io::Error::other("the thread that syncs has ended");
        ContentError::file(self.data.path())(error)
    }
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
