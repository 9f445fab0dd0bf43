//! The header field `Levada-Catalogue-Behind`: how far a catalogue that several nodes share is
//! behind, in answers that caches do not keep without asking again.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::response::{CachePolicy, Response};
use crate::store::{Lag, Store};

const FIELD: &str = "Levada-Catalogue-Behind";
/// The store is asked after this time again. In between, answers read two numbers, and no lock.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The last known lag of a store.
pub(super) struct Behind {
    /// Whether the store shares its changes with others.
    is_shared: bool,
    start: Instant,
    /// When the store is asked again, in milliseconds after `start`.
    next: AtomicU64,
    /// For how many seconds there were no news, and one more; 0 while they arrive.
    away: AtomicU64,
    /// How many changes are known and not applied yet.
    changes: AtomicU64,
}

impl Behind {
    pub fn new(store: &dyn Store) -> Self {
        Self {
            is_shared: store.lag().is_some(),
            start: Instant::now(),
            next: AtomicU64::new(0),
            away: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Adds the field, unless the store is up to date or the response never changes: a cache may
    /// deliver that for a year. Other caches would keep the field after it has ceased to be true,
    /// so they must not store the response.
    pub fn mark(&self, response: Response, store: &dyn Store) -> Response {
        if !self.is_shared || response.policy == Some(CachePolicy::Immutable) {
            return response;
        }
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.refresh(now, || store.lag());
        match self.value() {
            Some(value) => response.field(FIELD, &value).cache_policy(CachePolicy::NoStore),
            None => response,
        }
    }

    /// Asks the store if it is time to. One caller does; the others use what was known.
    fn refresh(&self, now: u64, lag: impl FnOnce() -> Option<Lag>) {
        let next = self.next.load(Ordering::Relaxed);
        let after = now.saturating_add(REFRESH_INTERVAL.as_millis() as u64);
        let is_due = now >= next
            && self
                .next
                .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if let Some(lag) = is_due.then(lag).flatten() {
            let away = lag.fault.map_or(0, |_| lag.away.as_secs() + 1);
            self.away.store(away, Ordering::Relaxed);
            self.changes.store(lag.changes, Ordering::Relaxed);
        }
    }

    /// A dictionary (RFC 9651 section 3.2); `None` if there is nothing to say.
    fn value(&self) -> Option<String> {
        let mut text = String::new();
        if let Some(seconds) = self.away.load(Ordering::Relaxed).checked_sub(1) {
            // Writing to a string does not fail.
            let _ = write!(text, "seconds={seconds}");
        }
        let changes = self.changes.load(Ordering::Relaxed);
        if changes > 0 {
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}changes={changes}");
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NoStore;

    #[test]
    fn says_how_far_it_is_behind_and_asks_once_per_interval() {
        let behind = Behind::new(&NoStore);
        let lag = |changes, away: Option<u64>| Lag {
            changes,
            fault: away.map(|_| "the engine is away".to_owned()),
            away: Duration::from_secs(away.unwrap_or(0)),
            rejected: 0,
        };
        let mut now = 0;
        for (lag, value) in [
            (lag(0, None), None),
            (lag(0, Some(12)), Some("seconds=12")),
            (lag(3, Some(0)), Some("seconds=0, changes=3")),
            (lag(3, None), Some("changes=3")),
            (lag(0, None), None),
        ] {
            behind.refresh(now, || Some(lag));
            assert_eq!(behind.value().as_deref(), value);
            behind.refresh(now + 999, || panic!("the store was asked again"));
            now += 1000;
        }
    }

    #[test]
    fn a_catalogue_of_one_node_says_nothing() {
        let response = Behind::new(&NoStore).mark(Response::new(200), &NoStore);
        assert!(!String::from_utf8(response.fields).unwrap().contains(FIELD));
    }
}
