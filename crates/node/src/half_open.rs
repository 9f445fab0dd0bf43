//! Unfinished handshakes: their number is bounded, and the oldest is evicted first.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::sleep;

/// The time for which a handshake is not evicted. Meanwhile further connections wait in the kernel's accept queue, which costs
/// the node almost nothing.
const MIN_TIME: Duration = Duration::from_millis(50);

/// The unfinished handshakes.
#[derive(Default)]
pub(crate) struct HalfOpen(Mutex<HalfOpenTable>);

/// Handshakes by ascending number, so that the oldest is the first.
#[derive(Default)]
struct HalfOpenTable {
    next: u64,
    /// Without a complete first record. They cost the node little, and an attacker even less.
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
    /// The handshake to evict: the oldest without a first record, or the oldest. A legitimate client sends its first record at
    /// once and finishes soon, so an old handshake is more likely an attack than a new one.
    fn oldest(&mut self) -> Option<OccupiedEntry<'_, u64, Handshake>> {
        self.silent.first_entry().or_else(|| self.active.first_entry())
    }

    fn len(&self) -> usize {
        self.silent.len() + self.active.len()
    }

    /// Ends the oldest handshake if there are `limit`; returns whether one was ended.
    ///
    /// # Errors
    /// The time until the oldest may be evicted.
    fn make_room(&mut self, limit: usize) -> Result<bool, Duration> {
        if self.len() < limit {
            return Ok(false);
        }
        let Some(oldest) = self.oldest() else { return Ok(false) };
        match MIN_TIME.checked_sub(oldest.get().since.elapsed()) {
            Some(left) if !left.is_zero() => Err(left),
            _ => {
                oldest.remove();
                Ok(true)
            }
        }
    }
}

impl HalfOpen {
    /// Waits until there are less than `limit` handshakes; returns whether one was evicted.
    pub(crate) async fn make_room(&self, limit: usize) -> bool {
        loop {
            let outcome = self.lock().make_room(limit);
            match outcome {
                Ok(ended) => return ended,
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

    pub(crate) fn evict_oldest(&self) {
        self.lock().oldest().map(OccupiedEntry::remove);
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
