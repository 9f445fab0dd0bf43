//! Places for handshakes that have not finished: bounded, and given up by the oldest first.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::sleep;

/// How long every handshake may keep its place, however many others wait for one: they wait in the
/// kernel's queue meanwhile, where they cost next to nothing.
const STAY: Duration = Duration::from_millis(50);

/// Handshakes that have not finished.
#[derive(Default)]
pub(crate) struct HalfOpen(Mutex<HalfOpenTable>);

/// By number, so the oldest is the first.
#[derive(Default)]
struct HalfOpenTable {
    next: u64,
    /// Those that have not sent a whole record: they cost us little, and whoever sends them even less.
    silent: BTreeMap<u64, HalfOpenPlace>,
    /// Those that are further.
    speaking: BTreeMap<u64, HalfOpenPlace>,
}

struct HalfOpenPlace {
    since: Instant,
    /// Dropped to end the handshake.
    _end: oneshot::Sender<()>,
}

impl HalfOpenTable {
    /// The oldest that has said nothing, or the oldest of all: one that has taken long is less likely
    /// to be honest than one that has just come, and an honest one speaks at once.
    fn oldest(&mut self) -> Option<OccupiedEntry<'_, u64, HalfOpenPlace>> {
        self.silent.first_entry().or_else(|| self.speaking.first_entry())
    }

    fn len(&self) -> usize {
        self.silent.len() + self.speaking.len()
    }

    /// Ends the oldest handshake if there are `limit`; true if one was ended. An error says how long
    /// it may still keep its place.
    fn make_room(&mut self, limit: usize) -> Result<bool, Duration> {
        if self.len() < limit {
            return Ok(false);
        }
        let Some(oldest) = self.oldest() else { return Ok(false) };
        match STAY.checked_sub(oldest.get().since.elapsed()) {
            Some(left) if !left.is_zero() => Err(left),
            _ => {
                oldest.remove();
                Ok(true)
            }
        }
    }
}

impl HalfOpen {
    /// Waits for a place; true if another handshake had to be ended for it.
    pub(crate) async fn make_room(&self, limit: usize) -> bool {
        loop {
            let outcome = self.lock().make_room(limit);
            match outcome {
                Ok(ended) => return ended,
                Err(left) => sleep(left).await,
            }
        }
    }

    pub(crate) fn enter(&self) -> (u64, oneshot::Receiver<()>) {
        let (end, evicted) = oneshot::channel();
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.silent.insert(number, HalfOpenPlace { since: Instant::now(), _end: end });
        (number, evicted)
    }

    pub(crate) fn speaks(&self, number: u64) {
        let mut table = self.lock();
        if let Some(place) = table.silent.remove(&number) {
            table.speaking.insert(number, place);
        }
    }

    pub(crate) fn leave(&self, number: u64) {
        let mut table = self.lock();
        table.silent.remove(&number);
        table.speaking.remove(&number);
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
        table.speaking.clear();
    }

    fn lock(&self) -> MutexGuard<'_, HalfOpenTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
