//! Unfinished handshakes of a listener. Their number is bounded: beyond it, the source that has
//! most of them loses its oldest one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::pending;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::sleep;

/// The time for which a handshake is not evicted for a new connection, which meanwhile waits in the
/// kernel's accept queue and costs almost nothing. After a failed accept, one is evicted at once.
const MIN_TIME: Duration = Duration::from_millis(50);

/// The unfinished handshakes. Clones share them.
#[derive(Clone, Default)]
pub struct HalfOpen(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    count: usize,
    sources: HashMap<IpAddr, Source>,
    /// One of each source. The last one is evicted next.
    ranks: BTreeSet<Rank>,
}

/// Handshakes by ascending numbers, so that the first is the oldest.
#[derive(Default)]
struct Source {
    /// Without a complete first record: a socket and a small buffer each.
    silent: BTreeMap<u64, Handshake>,
    /// With a complete first record.
    active: BTreeMap<u64, Handshake>,
}

struct Handshake {
    since: Instant,
    evict: oneshot::Sender<()>,
}

/// The number of handshakes of a source, whether one is silent, and the number of the oldest.
type Rank = (usize, bool, Reverse<u64>, IpAddr);

impl Source {
    /// The handshake to evict: the oldest without a complete first record, unless it has only
    /// begun, or else the oldest with one. A legitimate client sends its first record at once and
    /// finishes soon, so an old handshake is more likely an attack than a new one. A new one
    /// without a record must not protect old ones with one: the listener would wait for it, and
    /// accept one connection in 50 ms.
    fn candidate(&self) -> Option<(u64, &Handshake)> {
        let silent = self.silent.first_key_value();
        let is_old = silent.is_some_and(|(_, handshake)| handshake.since.elapsed() >= MIN_TIME);
        let active = self.active.first_key_value();
        let first = if is_old { silent } else { active.or(silent) };
        first.map(|(number, handshake)| (*number, handshake))
    }

    fn rank(&self, source: IpAddr) -> Option<Rank> {
        let first = [&self.silent, &self.active].map(|some| some.first_key_value());
        let oldest = first.into_iter().flatten().map(|(number, _)| *number).min()?;
        Some((self.len(), !self.silent.is_empty(), Reverse(oldest), source))
    }

    fn len(&self) -> usize {
        self.silent.len() + self.active.len()
    }

    fn remove(&mut self, number: u64) -> Option<Handshake> {
        self.silent.remove(&number).or_else(|| self.active.remove(&number))
    }
}

impl Table {
    /// Changes the handshakes of a source, and keeps counts and ranks.
    fn change<T>(&mut self, address: IpAddr, change: impl FnOnce(&mut Source) -> T) -> T {
        let source = self.sources.entry(address).or_default();
        if let Some(rank) = source.rank(address) {
            self.ranks.remove(&rank);
        }
        let before = source.len();
        let changed = change(source);
        self.count = self.count - before + source.len();
        match source.rank(address) {
            Some(rank) => drop(self.ranks.insert(rank)),
            None => drop(self.sources.remove(&address)),
        }
        changed
    }

    /// The age of the handshake to evict.
    fn age_of_candidate(&self) -> Option<Duration> {
        let (.., address) = self.ranks.last()?;
        let (_, handshake) = self.sources.get(address)?.candidate()?;
        Some(handshake.since.elapsed())
    }

    fn evict(&mut self) {
        let Some((.., address)) = self.ranks.last().copied() else { return };
        let candidate = self.sources.get(&address).and_then(Source::candidate);
        let Some(number) = candidate.map(|(number, _)| number) else { return };
        if let Some(handshake) = self.change(address, |source| source.remove(number)) {
            let _ = handshake.evict.send(());
        }
    }
}

impl HalfOpen {
    /// Evicts a handshake if there are `limit`, once it is older than 50 ms. Returns true if it
    /// did.
    pub async fn make_room(&self, limit: usize) -> bool {
        loop {
            let left = {
                let mut table = self.lock();
                if table.count < limit {
                    return false;
                }
                let Some(age) = table.age_of_candidate() else { return false };
                match MIN_TIME.checked_sub(age).filter(|left| !left.is_zero()) {
                    Some(left) => left,
                    None => {
                        table.evict();
                        return true;
                    }
                }
            };
            sleep(left).await;
        }
    }

    /// Registers a handshake until the first result is dropped. The second one resolves when it is
    /// evicted.
    pub fn enter(&self, source: IpAddr) -> (HalfOpenEntry, Evicted) {
        let (evict, evicted) = oneshot::channel();
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        let handshake = Handshake { since: Instant::now(), evict };
        table.change(source, |source| source.silent.insert(number, handshake));
        (HalfOpenEntry { half_open: self.clone(), source, number }, Evicted(evicted))
    }

    /// Evicts a handshake at once.
    pub fn evict(&self) {
        self.lock().evict();
    }

    /// The number of unfinished handshakes.
    pub fn count(&self) -> usize {
        self.lock().count
    }

    /// Evicts every handshake.
    pub fn end_all(&self) {
        let mut table = self.lock();
        while table.count > 0 {
            table.evict();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An unfinished handshake.
pub struct HalfOpenEntry {
    half_open: HalfOpen,
    source: IpAddr,
    number: u64,
}

impl HalfOpenEntry {
    /// The source, as it was given.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// Records that the peer has sent a complete first record.
    pub fn mark_active(&self) {
        self.half_open.lock().change(self.source, |source| {
            if let Some(handshake) = source.silent.remove(&self.number) {
                source.active.insert(self.number, handshake);
            }
        });
    }
}

impl Drop for HalfOpenEntry {
    fn drop(&mut self) {
        self.half_open.lock().change(self.source, |source| source.remove(self.number));
    }
}

/// Resolves when a handshake is evicted, and never once it has finished.
pub struct Evicted(oneshot::Receiver<()>);

impl Evicted {
    /// Waits for the eviction.
    pub async fn wait(self) {
        if self.0.await.is_err() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// The entries that were evicted, of those that are given.
    fn evicted(waits: &mut [Option<Evicted>]) -> Vec<usize> {
        let is_evicted = |wait: &mut Option<Evicted>| {
            let was = wait.as_mut().is_some_and(|wait| wait.0.try_recv().is_ok());
            if was {
                *wait = None;
            }
            was
        };
        let all =
            waits.iter_mut().enumerate().filter_map(|(at, wait)| is_evicted(wait).then_some(at));
        all.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_source_with_most_handshakes_loses_its_oldest() {
        let half_open = HalfOpen::default();
        let sources = [1, 2, 2, 3, 2, 3].map(address);
        let (entries, waits): (Vec<_>, Vec<_>) =
            sources.iter().map(|source| half_open.enter(*source)).unzip();
        let mut waits: Vec<_> = waits.into_iter().map(Some).collect();
        assert_eq!(half_open.count(), 6);
        // Of source 2, one has sent its first record.
        entries[1].mark_active();
        let order = std::iter::from_fn(|| {
            half_open.evict();
            evicted(&mut waits).pop()
        });
        // Source 2 has most, and its handshake with a record goes before those that have only
        // begun. Then 2 and 3 have two each, and at the end each has one: the oldest goes.
        assert_eq!(order.take(6).collect::<Vec<_>>(), [1, 2, 3, 0, 4, 5]);
        assert_eq!(half_open.count(), 0);
    }

    #[tokio::test]
    async fn a_handshake_that_ends_makes_room_and_is_not_evicted() {
        let half_open = HalfOpen::default();
        let (first, mut first_evicted) = half_open.enter(address(1));
        assert!(!half_open.make_room(2).await);
        let (_second, mut second_evicted) = half_open.enter(address(1));
        drop(first);
        assert!(!half_open.make_room(2).await);
        assert!(half_open.make_room(1).await);
        assert!(second_evicted.0.try_recv().is_ok());
        assert!(first_evicted.0.try_recv().is_err());
        let (_third, third_evicted) = half_open.enter(address(2));
        half_open.end_all();
        third_evicted.wait().await;
        assert_eq!((half_open.count(), half_open.lock().sources.len()), (0, 0));
    }
}
