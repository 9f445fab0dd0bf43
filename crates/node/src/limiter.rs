//! Rate limits of each source, and of all sources together: of operations of peers that have not
//! proved a right, and of new keys that succeed old ones.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// The number of rate limiters; a source is assigned to one by a hash. A table of sources would
/// have to evict entries, whose sources would get all their attempts back; here nothing is evicted,
/// and memory is fixed. The cost: a source shares its rate with one in 4096 others, which an
/// attacker cannot choose, because the hash has a random key.
const SLOTS: usize = 4096;

/// Limits a rate for each source and in total.
pub(crate) struct Limiter {
    hash: RandomState,
    slots: Vec<DefaultDirectRateLimiter>,
    total: DefaultDirectRateLimiter,
    clock: DefaultClock,
}

impl Limiter {
    /// Each source may do `per_source` operations within `period`, and all together `total`; a
    /// burst may use all of them.
    pub(crate) fn new(per_source: usize, total: usize, period: Duration) -> Self {
        let quota = |count: usize| {
            let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
            let count = count.unwrap_or(NonZeroU32::MIN);
            let each = period / count.get();
            Quota::with_period(each).unwrap_or(Quota::per_second(count)).allow_burst(count)
        };
        Self {
            hash: RandomState::new(),
            slots: (0..SLOTS).map(|_| RateLimiter::direct(quota(per_source))).collect(),
            total: RateLimiter::direct(quota(total)),
            clock: DefaultClock::default(),
        }
    }

    /// Counts one operation of `source`.
    ///
    /// # Errors
    /// The minimum wait before the next attempt; the operation was not counted.
    pub(crate) fn take(&self, source: IpAddr) -> Result<(), Duration> {
        let slot = self.hash.hash_one(source) % SLOTS as u64;
        let Some(slot) = usize::try_from(slot).ok().and_then(|slot| self.slots.get(slot)) else {
            return Ok(());
        };
        for rate in [slot, &self.total] {
            rate.check().map_err(|wait| wait.wait_time_from(self.clock.now()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_source_has_its_own_rate() {
        let limiter = Limiter::new(3, 1000, HOUR);
        let [one, two]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        for _ in 0..3 {
            limiter.take(one).unwrap();
        }
        assert!(limiter.take(one).unwrap_err() > Duration::from_secs(60));
        // One address in 4096 shares the slot of the first; not all of these do.
        let free = (3..9).map(|last| IpAddr::from([192, 0, 2, last])).chain([two]);
        assert!(free.filter(|source| limiter.take(*source).is_ok()).count() >= 5);
    }

    #[test]
    fn operations_of_other_sources_do_not_reset_a_rate() {
        let limiter = Limiter::new(2, 1_000_000, HOUR);
        let attacker: IpAddr = "192.0.2.1".parse().unwrap();
        while limiter.take(attacker).is_ok() {}
        for source in 0..100_000_u32 {
            let _ = limiter.take(IpAddr::V4(source.into()));
        }
        assert!(limiter.take(attacker).is_err());
    }

    #[test]
    fn all_sources_together_have_a_limit() {
        let limiter = Limiter::new(1, 100, HOUR);
        let taken = (0..10_000_u32).filter(|n| limiter.take(IpAddr::V4((*n).into())).is_ok());
        assert_eq!(taken.count(), 100);
    }
}
