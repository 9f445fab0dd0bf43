//! Connections that have finished their handshake. Their number is bounded, and one source cannot
//! use all of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::Identity;
use levada_core::wire::Reason;
use tokio::sync::Semaphore;

use crate::carrier::Carrier;
use crate::runs::Runs;

/// Operations of one connection that are not fully received yet: each may hold a whole message in
/// memory.
const MAX_PENDING_OPERATIONS: usize = 8;

/// Streams of a connection that are served at a time until its peer has proved a right: each may
/// hold a whole message and an answer.
const MAX_UNPROVED_STREAMS: usize = 8;

/// The open connections.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
}

struct Entry {
    connection: Arc<dyn Carrier>,
    source: IpAddr,
    sessions: Arc<AtomicUsize>,
    peers: Arc<AtomicUsize>,
}

/// The registration of a connection in [`Connections`], shared by its streams.
#[derive(Clone)]
pub(crate) struct ConnectionSlot {
    number: u64,
    pub(crate) source: IpAddr,
    /// Sessions that run on the connection; it is not evicted while there is one.
    sessions: Arc<AtomicUsize>,
    /// Those of them that serve a peer of a share: the connection does not count then.
    peers: Arc<AtomicUsize>,
    /// Permits to receive an operation.
    pub(crate) pending_operations: Arc<Semaphore>,
    /// Closed once the peer has proved a right: streams need no permit then.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) runs: Arc<Runs>,
}

/// Counts a running session of a connection until it is dropped.
pub(crate) struct SessionCount(Vec<Arc<AtomicUsize>>);

impl ConnectionSlot {
    /// Records that the peer of `connection`, to which this slot belongs, has proved a right: lifts
    /// the limits for unproved peers.
    pub(crate) fn mark_proved(&self, connection: &dyn Carrier) {
        connection.raise_credit();
        self.streams.close();
    }

    /// Whether the peer has proved a right: it may request a service, has started a session, or has
    /// redeemed an invitation or a ticket.
    pub(crate) fn is_proved(&self) -> bool {
        self.streams.is_closed()
    }

    /// Counts a started session until the result is dropped; `is_peer`: it serves a peer of a
    /// share.
    pub(crate) fn count_session(&self, is_peer: bool) -> SessionCount {
        let mut counts = vec![self.sessions.clone()];
        counts.extend(is_peer.then(|| self.peers.clone()));
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        SessionCount(counts)
    }
}

impl Drop for SessionCount {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Connections {
    /// Registers a connection. If there are `limit` already that serve no peer of a share, closes
    /// one without a session.
    pub(crate) fn insert(
        &self,
        connection: &Arc<dyn Carrier>,
        source: IpAddr,
        limit: usize,
    ) -> ConnectionSlot {
        let mut table = self.lock();
        let counts = |entry: &&Entry| entry.peers.load(Ordering::Relaxed) == 0;
        if table.open.len() >= limit
            && table.open.values().filter(counts).count() >= limit
            && let Some(number) = table.eviction_candidate()
            && let Some(entry) = table.open.remove(&number)
        {
            let text = "the node has too many connections";
            entry.connection.close(Reason::Busy, text);
        }
        table.next += 1;
        let number = table.next;
        let sessions = Arc::new(AtomicUsize::new(0));
        let peers = Arc::new(AtomicUsize::new(0));
        let entry = Entry {
            connection: connection.clone(),
            source,
            sessions: sessions.clone(),
            peers: peers.clone(),
        };
        table.open.insert(number, entry);
        let pending_operations = Arc::new(Semaphore::new(MAX_PENDING_OPERATIONS));
        let streams = Arc::new(Semaphore::new(MAX_UNPROVED_STREAMS));
        ConnectionSlot {
            number,
            source,
            sessions,
            peers,
            pending_operations,
            streams,
            runs: Arc::default(),
        }
    }

    pub(crate) fn remove(&self, slot: &ConnectionSlot) {
        self.lock().open.remove(&slot.number);
    }

    /// Closes the connections of `peer`, or all if `None`.
    pub(crate) fn close(&self, peer: Option<&Identity>, reason: Reason, text: &str) {
        for Entry { connection, .. } in self.lock().open.values() {
            if peer.is_none_or(|peer| *peer == connection.peer()) {
                connection.close(reason, text);
            }
        }
    }

    /// Closes the connections of `peer` on which no session runs.
    pub(crate) fn close_idle(&self, peer: &Identity, reason: Reason, text: &str) {
        let table = self.lock();
        let idle = table.open.values().filter(|entry| {
            entry.connection.peer() == *peer && entry.sessions.load(Ordering::Relaxed) == 0
        });
        idle.for_each(|entry| entry.connection.close(reason, text));
    }

    /// The identities that are connected.
    pub(crate) fn peers(&self) -> BTreeSet<Identity> {
        self.lock().open.values().map(|entry| entry.connection.peer()).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().open.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The connection to close when there are too many. Only connections without a session are
    /// candidates: of the source with the most of them, first one whose peer has not proved a
    /// right, then the oldest. So a new connection has time to prove a right, even while further
    /// ones arrive.
    fn eviction_candidate(&self) -> Option<u64> {
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
