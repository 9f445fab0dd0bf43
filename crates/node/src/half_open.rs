//! Unfinished handshakes: their number is bounded. When it is reached, the oldest is evicted, first of those that have not
//! sent a complete record.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::sleep;

/// The time for which a handshake is not evicted for a new connection, which meanwhile waits in the kernel's accept queue and
/// costs the node almost nothing. After a failed accept, the node evicts one at once.
const MIN_TIME: Duration = Duration::from_millis(50);

/// The unfinished handshakes.
#[derive(Default)]
pub(crate) struct HalfOpen(Mutex<HalfOpenTable>);

/// Each map is ordered by the handshakes' ascending numbers, so its first one is its oldest.
#[derive(Default)]
struct HalfOpenTable {
    next: u64,
    /// Without a complete first record: a socket and a small buffer each.
    silent: BTreeMap<u64, Handshake>,
    /// With a complete first record.
    active: BTreeMap<u64, Handshake>,
}

struct Handshake {
    since: Instant,
    /// Dropped to end the handshake.
    _end: oneshot::Sender<()>,
}

impl HalfOpenTable {
    /// The handshake to evict: the oldest without a complete first record, or else the oldest. A legitimate client sends its
    /// first record at once and finishes soon, so an old handshake is more likely an attack than a new one.
    fn eviction_candidate(&mut self) -> Option<OccupiedEntry<'_, u64, Handshake>> {
        self.silent.first_entry().or_else(|| self.active.first_entry())
    }

    fn len(&self) -> usize {
        self.silent.len() + self.active.len()
    }

    /// Evicts one handshake if there are `limit`; returns whether one was evicted.
    ///
    /// # Errors
    /// The time until the candidate may be evicted.
    fn make_room(&mut self, limit: usize) -> Result<bool, Duration> {
        if self.len() < limit {
            return Ok(false);
        }
        let Some(candidate) = self.eviction_candidate() else { return Ok(false) };
        match MIN_TIME.checked_sub(candidate.get().since.elapsed()) {
            Some(left) if !left.is_zero() => Err(left),
            _ => {
                candidate.remove();
                Ok(true)
            }
        }
    }
}

impl HalfOpen {
    /// Evicts a handshake if there are `limit`, once the candidate is older than [`MIN_TIME`]; returns whether one was evicted.
    pub(crate) async fn make_room(&self, limit: usize) -> bool {
        loop {
            let outcome = self.lock().make_room(limit);
            match outcome {
                Ok(evicted) => return evicted,
                Err(left) => sleep(left).await,
            }
        }
    }

    /// Registers a handshake: its number, and a channel that closes when it is evicted.
    pub(crate) fn insert(&self) -> (u64, oneshot::Receiver<()>) {
        let (end, evicted) = oneshot::channel();
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.silent.insert(number, Handshake { since: Instant::now(), _end: end });
        (number, evicted)
    }

    /// Records that a handshake has sent a complete first record.
    pub(crate) fn mark_active(&self, number: u64) {
        let mut table = self.lock();
        if let Some(handshake) = table.silent.remove(&number) {
            table.active.insert(number, handshake);
        }
    }

    pub(crate) fn remove(&self, number: u64) {
        let mut table = self.lock();
        table.silent.remove(&number);
        table.active.remove(&number);
    }

    /// Evicts a handshake at once.
    pub(crate) fn evict(&self) {
        self.lock().eviction_candidate().map(OccupiedEntry::remove);
    }

    pub(crate) fn count(&self) -> i64 {
        i64::try_from(self.lock().len()).unwrap_or(i64::MAX)
    }

    /// Ends every handshake.
    pub(crate) fn end_all(&self) {
        let mut table = self.lock();
        table.silent.clear();
        table.active.clear();
    }

    fn lock(&self) -> MutexGuard<'_, HalfOpenTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
