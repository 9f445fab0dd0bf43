//! The runs (started sessions) of one connection, and the assignment of further streams to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::wire::Reason;
use levada_service::Streams;
use levada_service::streams::{IncomingSender, supported};
use levada_session::Stream;

use crate::carrier::Carrier;

/// The runs of one connection. The number of a run is valid on its own connection only, so that a
/// peer cannot attach a stream to a session of another peer.
#[derive(Default)]
pub(crate) struct Runs(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    running: HashMap<u64, IncomingSender>,
}

/// The registration of a run; dropping it removes the run.
pub(crate) struct RunGuard {
    runs: Arc<Runs>,
    number: u64,
}

impl Runs {
    /// Registers a run, which may have `limit` further streams.
    pub(crate) fn register(
        self: &Arc<Self>,
        connection: &dyn Carrier,
        limit: usize,
    ) -> (RunGuard, Streams) {
        let Some(connection) = connection.channel().filter(|channel| supported(channel)) else {
            return (RunGuard { runs: self.clone(), number: 0 }, Streams::none());
        };
        let mut table = self.lock();
        table.last += 1;
        let number = table.last;
        let (streams, sender) = Streams::new(connection.clone(), number, limit);
        table.running.insert(number, sender);
        (RunGuard { runs: self.clone(), number }, streams)
    }

    /// Passes a stream to the run `number`. A refused stream is reset with the reason as its code.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub(crate) fn attach(&self, number: u64, mut stream: Stream) -> Result<(), Reason> {
        let sender = self.lock().running.get(&number).cloned();
        match sender {
            Some(sender) => sender.deliver(stream),
            None => {
                stream.reset(Reason::Unknown as u64);
                Err(Reason::Unknown)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunGuard {
    /// The number of the run; 0 if it can have no further streams.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.runs.lock().running.remove(&self.number);
    }
}
