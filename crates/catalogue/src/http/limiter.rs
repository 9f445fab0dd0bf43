//! Who may have how many connections.
//!
//! A source has at most its share of the places, so that no other is shut out by it. Where places are short, the connection
//! goes that has asked for nothing for the longest time, of the source with the most of them. A connection for which there
//! is no place all the same gets one of a few that are reserved: there health and metrics are answered, and everything else
//! waits for a place.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

/// How many connections beyond the places are listened to.
const RESERVED: usize = 32;
/// How often it is looked, without being told, whether a place can be had: others come to rest unnoticed.
const LOOK: Duration = Duration::from_millis(100);

/// Whom a connection is counted for: its IPv4 address, or the /64 of an IPv6 address, which is what one host commonly owns
/// (RFC 4291 section 2.5.4).
pub(super) fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & (u128::MAX << 64)).into()),
        v4 => v4,
    }
}

/// The places of a server.
pub(super) struct Places {
    pools: Mutex<Pools>,
    /// Another connection has ended.
    freed: Notify,
    began: Instant,
}

struct Pools {
    next: u64,
    common: Pool,
    reserved: Pool,
    /// How many connections were ended to make room.
    evicted: u64,
}

struct Pool {
    limit: usize,
    per_source: usize,
    held: HashMap<u64, Held>,
    sources: HashMap<IpAddr, usize>,
}

struct Held {
    source: IpAddr,
    slot: Arc<Slot>,
}

/// What a connection and its place know of each other.
pub(super) struct Slot {
    /// Since when it has had nothing to answer, in milliseconds since the server began, plus one; 0 while it has.
    idle: AtomicU64,
    /// Its place was given to another connection.
    gone: Notify,
}

impl Slot {
    /// Ends when the connection has to make room.
    pub async fn gone(&self) {
        self.gone.notified().await;
    }
}

/// A place of one connection; free when it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    is_reserved: bool,
    pub source: IpAddr,
    pub slot: Arc<Slot>,
}

impl Places {
    /// So many places, of which one source has at most `per_source`.
    pub fn new(limit: usize, per_source: usize) -> Arc<Self> {
        let common = Pool::new(limit, per_source);
        let reserved = Pool::new(RESERVED, RESERVED);
        let pools = Pools { next: 0, common, reserved, evicted: 0 };
        Arc::new(Self { pools: Mutex::new(pools), freed: Notify::new(), began: Instant::now() })
    }

    /// A place for a connection of `source`: one of the reserved ones if there is none for it.
    pub fn take(self: &Arc<Self>, source: IpAddr) -> Place {
        let slot = Arc::new(Slot { idle: AtomicU64::new(self.now()), gone: Notify::new() });
        self.try_take(source, &slot).unwrap_or_else(|| {
            let mut pools = self.lock();
            let id = pools.id();
            // What waits there is at rest, so that one of them always goes.
            let evicted = pools.reserved.make_room(source);
            pools.evicted += u64::from(evicted);
            pools.reserved.put(id, source, &slot);
            Place { places: Arc::clone(self), id, is_reserved: true, source, slot }
        })
    }

    /// Waits until there is a place.
    pub async fn wait(self: &Arc<Self>, source: IpAddr, slot: &Arc<Slot>) -> Place {
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(place) = self.try_take(source, slot) {
                return place;
            }
            let _ = timeout(LOOK, freed).await;
        }
    }

    /// How many connections were ended to make room.
    pub fn evicted(&self) -> u64 {
        self.lock().evicted
    }

    fn try_take(self: &Arc<Self>, source: IpAddr, slot: &Arc<Slot>) -> Option<Place> {
        let mut pools = self.lock();
        if !pools.common.has_room(source) {
            if !pools.common.make_room(source) {
                return None;
            }
            pools.evicted += 1;
        }
        let id = pools.id();
        pools.common.put(id, source, slot);
        let (places, slot) = (Arc::clone(self), Arc::clone(slot));
        Some(Place { places, id, is_reserved: false, source, slot })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pools {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Place {
    /// Whether only what has places reserved is answered.
    pub fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Waits for a place that is none of the reserved ones.
    pub async fn exchange(&self) -> Self {
        self.places.wait(self.source, &self.slot).await
    }

    /// The connection has something to answer.
    pub fn work(&self) {
        self.slot.idle.store(0, Ordering::Relaxed);
    }

    /// It has nothing to answer, from now on if it had.
    pub fn rest(&self) {
        if self.slot.idle.load(Ordering::Relaxed) == 0 {
            self.slot.idle.store(self.places.now(), Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut pools = self.places.lock();
        let pool = if self.is_reserved { &mut pools.reserved } else { &mut pools.common };
        if pool.remove(self.id).is_some() && !self.is_reserved {
            drop(pools);
            self.places.freed.notify_waiters();
        }
    }
}

impl Pool {
    fn new(limit: usize, per_source: usize) -> Self {
        Self { limit, per_source, held: HashMap::new(), sources: HashMap::new() }
    }

    fn count(&self, source: IpAddr) -> usize {
        self.sources.get(&source).copied().unwrap_or(0)
    }

    fn has_room(&self, source: IpAddr) -> bool {
        self.held.len() < self.limit && self.count(source) < self.per_source
    }

    fn put(&mut self, id: u64, source: IpAddr, slot: &Arc<Slot>) {
        self.held.insert(id, Held { source, slot: Arc::clone(slot) });
        *self.sources.entry(source).or_default() += 1;
    }

    fn remove(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        if let Some(count) = self.sources.get_mut(&held.source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&held.source);
            }
        }
        Some(held)
    }

    /// Ends a connection in favour of one of `source`, if there is one that has to go: true if there is room then
    /// because of that.
    fn make_room(&mut self, source: IpAddr) -> bool {
        let goes = if self.count(source) >= self.per_source {
            self.oldest_idle(|other| other == source)
        } else if self.held.len() >= self.limit {
            self.least_missed(source)
        } else {
            None
        };
        let Some(held) = goes.and_then(|id| self.remove(id)) else { return false };
        held.slot.gone.notify_one();
        true
    }

    /// The connection that goes when all places are taken: one at rest of the source with the most, or of any; where
    /// none rests, any of a source that has more than twice as many as this one would have.
    fn least_missed(&self, newcomer: IpAddr) -> Option<u64> {
        let (most, count) = self.sources.iter().max_by_key(|(_, count)| **count)?;
        let resting = self.oldest_idle(|source| source == *most);
        resting.or_else(|| self.oldest_idle(|_| true)).or_else(|| {
            let own = self.count(newcomer) + 1;
            let of_most = self.held.iter().filter(|(_, held)| held.source == *most);
            of_most.map(|(id, _)| *id).min().filter(|_| *count > 2 * own)
        })
    }

    fn oldest_idle(&self, of: impl Fn(IpAddr) -> bool) -> Option<u64> {
        let idle = self.held.iter().filter(|(_, held)| of(held.source)).filter_map(|(id, held)| {
            let since = held.slot.idle.load(Ordering::Relaxed);
            (since > 0).then_some((Reverse(since), Reverse(*id)))
        });
        idle.max().map(|(_, Reverse(id))| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Whether the connection had to make room.
    fn is_gone(place: &Place) -> bool {
        let pools = place.places.lock();
        !pools.common.held.contains_key(&place.id) && !pools.reserved.held.contains_key(&place.id)
    }

    #[test]
    fn a_source_has_its_share_and_no_more() {
        let places = Places::new(10, 3);
        let mut held: Vec<Place> = (0..3).map(|_| places.take(source(1))).collect();
        held.iter().for_each(Place::work);
        let fourth = places.take(source(1));
        assert!(fourth.is_reserved() && !held.iter().any(is_gone));
        assert!(!places.take(source(2)).is_reserved());
        // One that rests makes room for another of its own.
        held[1].rest();
        let fifth = places.take(source(1));
        assert!(!fifth.is_reserved() && is_gone(&held[1]));
        held.remove(0);
        assert!(!places.take(source(1)).is_reserved());
    }

    #[test]
    fn where_places_are_short_the_source_with_the_most_gives() {
        let places = Places::new(5, 5);
        let many: Vec<Place> = (0..4).map(|_| places.take(source(1))).collect();
        let few = places.take(source(2));
        many[0].work();
        let new = places.take(source(3));
        assert!(!new.is_reserved() && is_gone(&many[1]) && !is_gone(&few));
        // None rests: only a source that has by far the most gives one.
        [&many[2], &many[3], &few, &new].into_iter().for_each(Place::work);
        assert!(places.take(source(2)).is_reserved() && !many[2..].iter().any(is_gone));
        drop((many, new));
        let many: Vec<Place> = (0..4).map(|_| places.take(source(1))).collect();
        many.iter().for_each(Place::work);
        let new = places.take(source(4));
        assert!(!new.is_reserved() && is_gone(&many[0]) && !is_gone(&few));
    }

    #[tokio::test]
    async fn who_waits_gets_the_next_place() {
        let places = Places::new(1, 1);
        let first = places.take(source(1));
        first.work();
        let waits = places.take(source(2));
        let (got, ()) = tokio::join!(waits.exchange(), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(!got.is_reserved());
    }

    #[test]
    fn reserved_places_go_to_the_newest() {
        let places = Places::new(1, 1);
        let first = places.take(source(1));
        first.work();
        let waiting: Vec<Place> = (0..=RESERVED).map(|_| places.take(source(2))).collect();
        assert!(is_gone(&waiting[0]) && !waiting[1..].iter().any(is_gone) && !is_gone(&first));
        assert_eq!(places.evicted(), 1);
    }

    #[test]
    fn what_leaves_is_forgotten() {
        bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
            let places = Places::new(4, 2);
            let mut held: Vec<Place> = Vec::new();
            for (which, what) in steps {
                match what % 4 {
                    0 if !held.is_empty() => {
                        drop(held.swap_remove(usize::from(*which) % held.len()))
                    }
                    1 if !held.is_empty() => held[usize::from(*which) % held.len()].work(),
                    2 if !held.is_empty() => held[usize::from(*which) % held.len()].rest(),
                    _ => held.push(places.take(source(which % 3))),
                }
                let pools = places.lock();
                assert!(pools.common.held.len() <= 4 && pools.reserved.held.len() <= RESERVED);
                assert!(pools.common.sources.values().all(|count| *count <= 2));
            }
            drop(held);
            let pools = places.lock();
            assert!(pools.common.held.is_empty() && pools.common.sources.is_empty());
            assert!(pools.reserved.held.is_empty() && pools.reserved.sources.is_empty());
        });
    }
}
