//! The starts that run on one connection, and how further streams find theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::wire::Reason;
use levada_service::Streams;
use levada_service::streams::{Entrance, supported};
use levada_session::{Connection, Stream};

/// The starts that run on one connection. A number names a start on its own connection and nowhere else, so that
/// nobody reaches the sessions of another.
#[derive(Default)]
pub(crate) struct Runs(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    running: HashMap<u64, Entrance>,
}

/// A start's place; dropping it leaves the table.
pub(crate) struct Run {
    runs: Arc<Runs>,
    number: u64,
}

impl Runs {
    /// Enters a start, which may have `limit` further streams.
    pub(crate) fn enter(self: &Arc<Self>, connection: &Connection, limit: usize) -> (Run, Streams) {
        if !supported(connection) {
            return (Run { runs: self.clone(), number: 0 }, Streams::none());
        }
        let mut table = self.lock();
        table.last += 1;
        let number = table.last;
        let (streams, entrance) = Streams::new(connection.clone(), number, limit);
        table.running.insert(number, entrance);
        (Run { runs: self.clone(), number }, streams)
    }

    /// Hands a stream to the start that it names; one that is refused is reset with the reason.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn attach(&self, number: u64, mut stream: Stream) -> Result<(), Reason> {
        let entrance = self.lock().running.get(&number).cloned();
        match entrance {
            Some(entrance) => entrance.enter(stream),
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

impl Run {
    /// The number that names the start; 0 if it can have no further streams.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.runs.lock().running.remove(&self.number);
    }
}
