//! Connections that have finished their handshake: a bounded number, of which no source can take all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_client::close_code;
use levada_core::Identity;
use levada_core::wire::Reason;
use levada_session::Connection;
use tokio::sync::Semaphore;

use crate::runs::Runs;

/// Operations of one connection that are not decided yet: each may hold a whole message in memory.
const UNDECIDED: usize = 8;

/// Streams of a connection that are served at a time until its peer has proved a right: each may hold a whole message and
/// an answer.
const UNPROVED_STREAMS: usize = 8;

/// The open connections.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
}

struct Entry {
    connection: Connection,
    source: IpAddr,
    sessions: Arc<AtomicUsize>,
}

/// A connection's place, shared by its streams.
#[derive(Clone)]
pub(crate) struct Place {
    number: u64,
    pub(crate) source: IpAddr,
    /// Sessions that run on the connection: while there is one, it keeps its place.
    sessions: Arc<AtomicUsize>,
    pub(crate) undecided: Arc<Semaphore>,
    /// Closed once the peer has proved a right: streams need no permit then.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) runs: Arc<Runs>,
}

/// A session that runs; dropping it ends the count.
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Place {
    /// The peer of `connection`, whose place this is, has proved a right: the limits of those that have not end.
    pub(crate) fn prove(&self, connection: &Connection) {
        connection.raise_credit();
        self.streams.close();
    }

    /// Whether the peer may request something, or has started a session or redeemed an invitation.
    pub(crate) fn is_proved(&self) -> bool {
        self.streams.is_closed()
    }

    /// Counts a session that has been started.
    pub(crate) fn busy(&self) -> Busy {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Busy(self.sessions.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    /// Enters a connection; when there are too many, another one without a session is closed.
    pub(crate) fn enter(&self, connection: &Connection, source: IpAddr, limit: usize) -> Place {
        let mut table = self.lock();
        if table.open.len() >= limit
            && let Some(number) = table.dispensable()
            && let Some(entry) = table.open.remove(&number)
        {
            let text = "the node has too many connections";
            entry.connection.close(close_code(Reason::Busy), text);
        }
        table.next += 1;
        let number = table.next;
        let sessions = Arc::new(AtomicUsize::new(0));
        let entry = Entry { connection: connection.clone(), source, sessions: sessions.clone() };
        table.open.insert(number, entry);
        let undecided = Arc::new(Semaphore::new(UNDECIDED));
        let streams = Arc::new(Semaphore::new(UNPROVED_STREAMS));
        Place { number, source, sessions, undecided, streams, runs: Arc::default() }
    }

    pub(crate) fn leave(&self, place: &Place) {
        self.lock().open.remove(&place.number);
    }

    /// Closes the connections of `peer`, or all.
    pub(crate) fn close(&self, peer: Option<&Identity>, reason: Reason, text: &str) {
        for Entry { connection, .. } in self.lock().open.values() {
            if peer.is_none_or(|peer| *peer == connection.peer()) {
                connection.close(close_code(reason), text);
            }
        }
    }

    pub(crate) fn count(&self) -> i64 {
        i64::try_from(self.lock().open.len()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// A connection without a session, of a source that has the most of them: there, one whose peer has proved no right
    /// goes first, and then the oldest. So one that has just come has the time to prove a right, whatever comes after it.
    fn dispensable(&self) -> Option<u64> {
        let idle = || {
            let entries = self.open.iter();
            entries.filter(|(_, entry)| entry.sessions.load(Ordering::Relaxed) == 0)
        };
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (_, entry) in idle() {
            *counts.entry(entry.source).or_default() += 1;
        }
        let rank = |number: u64, entry: &Entry| {
            (counts.get(&entry.source), entry.connection.is_bounded(), Reverse(number))
        };
        let first = idle().max_by_key(|(number, entry)| rank(**number, entry))?;
        Some(*first.0)
    }
}
