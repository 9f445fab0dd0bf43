//! Limits the number of connections, in total and for each source.
//!
//! A source has a maximum, so that one source cannot take all connections. When a limit is reached,
//! a new connection evicts the one that has been idle for the longest time, preferably of the
//! source with the most connections. If none can be evicted, the new connection gets one of a few
//! reserved permits: it may request health and metrics, and any other request waits for a regular
//! permit.

mod pool;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use pool::Pool;

pub(super) use pool::Activity;

/// How many connections are accepted beyond the limit.
const RESERVED: usize = 32;
/// The interval at which a waiting connection tries again without a notification: none is sent when
/// another connection becomes idle.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The connections of a server.
pub(super) struct ConnectionLimiter {
    pools: Mutex<Pools>,
    /// Notified when a connection with a regular permit ends.
    freed: Notify,
    started: Instant,
}

struct Pools {
    next_id: u64,
    regular: Pool,
    reserved: Pool,
    /// How many connections were evicted.
    evicted: u64,
}

/// The permit of one connection, released when it is dropped.
pub(super) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    id: u64,
    is_reserved: bool,
    pub source: IpAddr,
    pub activity: Arc<Activity>,
}

impl ConnectionLimiter {
    /// Allows `limit` connections, of which one source may have `per_source`.
    pub fn new(limit: usize, per_source: usize) -> Arc<Self> {
        let regular = Pool::new(limit, per_source);
        let reserved = Pool::new(RESERVED, RESERVED);
        let pools = Pools { next_id: 0, regular, reserved, evicted: 0 };
        Arc::new(Self { pools: Mutex::new(pools), freed: Notify::new(), started: Instant::now() })
    }

    /// A permit for a connection of `source`: a reserved one if no other is available.
    pub fn acquire(self: &Arc<Self>, source: IpAddr) -> ConnectionPermit {
        let activity = Activity::new(self.since_start(Instant::now()));
        self.try_acquire(source, &activity).unwrap_or_else(|| {
            let mut pools = self.lock();
            let id = pools.new_id();
            // Connections with a reserved permit are idle, so one of them can always be evicted.
            let evicted = pools.reserved.evict_for(source);
            pools.evicted += u64::from(evicted);
            pools.reserved.put(id, source, &activity);
            ConnectionPermit { limiter: Arc::clone(self), id, is_reserved: true, source, activity }
        })
    }

    /// Waits for a regular permit.
    async fn wait(self: &Arc<Self>, source: IpAddr, activity: &Arc<Activity>) -> ConnectionPermit {
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(permit) = self.try_acquire(source, activity) {
                return permit;
            }
            let _ = timeout(POLL_INTERVAL, freed).await;
        }
    }

    /// How many connections were evicted.
    pub fn evicted(&self) -> u64 {
        self.lock().evicted
    }

    fn try_acquire(
        self: &Arc<Self>,
        source: IpAddr,
        activity: &Arc<Activity>,
    ) -> Option<ConnectionPermit> {
        let mut pools = self.lock();
        if !pools.regular.has_room(source) {
            if !pools.regular.evict_for(source) {
                return None;
            }
            pools.evicted += 1;
        }
        let id = pools.new_id();
        pools.regular.put(id, source, activity);
        let limiter = Arc::clone(self);
        let activity = Arc::clone(activity);
        Some(ConnectionPermit { limiter, id, is_reserved: false, source, activity })
    }

    /// A time in milliseconds since the start, plus one.
    fn since_start(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.started);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pools {
    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl ConnectionPermit {
    /// Whether the connection may request only what [`Extra`](super::Extra) answers.
    pub fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Waits for a regular permit.
    pub async fn wait_for_regular(&self) -> Self {
        self.limiter.wait(self.source, &self.activity).await
    }

    /// Marks the connection as busy.
    pub fn set_busy(&self) {
        self.activity.idle_since.store(0, Ordering::Relaxed);
    }

    /// Marks the connection as idle, from `now` on if it was busy.
    pub fn set_idle(&self, now: Instant) {
        if self.activity.idle_since.load(Ordering::Relaxed) == 0 {
            self.activity.idle_since.store(self.limiter.since_start(now), Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut pools = self.limiter.lock();
        let pool = if self.is_reserved { &mut pools.reserved } else { &mut pools.regular };
        if pool.remove(self.id).is_some() && !self.is_reserved {
            drop(pools);
            self.limiter.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Whether the connection was evicted.
    fn is_evicted(permit: &ConnectionPermit) -> bool {
        let pools = permit.limiter.lock();
        !pools.regular.held.contains_key(&permit.id)
            && !pools.reserved.held.contains_key(&permit.id)
    }

    #[test]
    fn a_source_has_its_maximum_and_no_more() {
        let limiter = ConnectionLimiter::new(10, 3);
        let mut held: Vec<ConnectionPermit> = (0..3).map(|_| limiter.acquire(source(1))).collect();
        held.iter().for_each(ConnectionPermit::set_busy);
        let fourth = limiter.acquire(source(1));
        assert!(fourth.is_reserved() && !held.iter().any(is_evicted));
        assert!(!limiter.acquire(source(2)).is_reserved());
        // An idle one is evicted for another of the same source.
        held[1].set_idle(Instant::now());
        let fifth = limiter.acquire(source(1));
        assert!(!fifth.is_reserved() && is_evicted(&held[1]));
        held.remove(0);
        assert!(!limiter.acquire(source(1)).is_reserved());
    }

    #[test]
    fn evicts_from_the_source_with_the_most_connections() {
        let limiter = ConnectionLimiter::new(5, 5);
        let many: Vec<ConnectionPermit> = (0..4).map(|_| limiter.acquire(source(1))).collect();
        let few = limiter.acquire(source(2));
        many[0].set_busy();
        let new = limiter.acquire(source(3));
        assert!(!new.is_reserved() && is_evicted(&many[1]) && !is_evicted(&few));
        // None is idle: only a source with more than twice as many loses one.
        [&many[2], &many[3], &few, &new].into_iter().for_each(ConnectionPermit::set_busy);
        assert!(limiter.acquire(source(2)).is_reserved() && !many[2..].iter().any(is_evicted));
        drop((many, new));
        let many: Vec<ConnectionPermit> = (0..4).map(|_| limiter.acquire(source(1))).collect();
        many.iter().for_each(ConnectionPermit::set_busy);
        let new = limiter.acquire(source(4));
        assert!(!new.is_reserved() && is_evicted(&many[0]) && !is_evicted(&few));
    }

    #[tokio::test]
    async fn an_evicted_connection_ends_also_if_its_task_is_spawned_later() {
        for is_spawned_first in [true, false] {
            let limiter = ConnectionLimiter::new(1, 1);
            let first = limiter.acquire(source(1));
            let task = tokio::spawn(std::future::pending::<()>());
            if is_spawned_first {
                first.activity.spawned(task.abort_handle());
            }
            let second = limiter.acquire(source(1));
            assert!(is_evicted(&first) && !is_evicted(&second));
            if !is_spawned_first {
                first.activity.spawned(task.abort_handle());
            }
            assert!(task.await.unwrap_err().is_cancelled());
        }
    }

    #[tokio::test]
    async fn a_waiting_connection_gets_the_next_permit() {
        let limiter = ConnectionLimiter::new(1, 1);
        let first = limiter.acquire(source(1));
        first.set_busy();
        let waiting = limiter.acquire(source(2));
        let (permit, ()) = tokio::join!(waiting.wait_for_regular(), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(!permit.is_reserved());
    }

    #[test]
    fn reserved_permits_go_to_the_newest_connections() {
        let limiter = ConnectionLimiter::new(1, 1);
        let first = limiter.acquire(source(1));
        first.set_busy();
        let waiting: Vec<ConnectionPermit> =
            (0..=RESERVED).map(|_| limiter.acquire(source(2))).collect();
        assert!(
            is_evicted(&waiting[0]) && !waiting[1..].iter().any(is_evicted) && !is_evicted(&first)
        );
        assert_eq!(limiter.evicted(), 1);
    }

    #[test]
    fn counts_match_the_permits_that_are_held() {
        bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
            let limiter = ConnectionLimiter::new(4, 2);
            let mut held: Vec<ConnectionPermit> = Vec::new();
            for (which, what) in steps {
                match what % 4 {
                    0 if !held.is_empty() => {
                        drop(held.swap_remove(usize::from(*which) % held.len()))
                    }
                    1 if !held.is_empty() => held[usize::from(*which) % held.len()].set_busy(),
                    2 if !held.is_empty() => {
                        held[usize::from(*which) % held.len()].set_idle(Instant::now())
                    }
                    _ => held.push(limiter.acquire(source(which % 3))),
                }
                let pools = limiter.lock();
                assert!(pools.regular.held.len() <= 4 && pools.reserved.held.len() <= RESERVED);
                assert!(pools.regular.sources.values().all(|count| *count <= 2));
            }
            drop(held);
            let pools = limiter.lock();
            assert!(pools.regular.held.is_empty() && pools.regular.sources.is_empty());
            assert!(pools.reserved.held.is_empty() && pools.reserved.sources.is_empty());
        });
    }
}
