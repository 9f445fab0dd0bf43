//! Wrong secrets of invitations and tickets are counted for each source and in total: a secret
//! cannot be guessed, and one source cannot lock out the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a source is locked out, and how long wrong attempts count.
const LOCKOUT: Duration = Duration::from_secs(10 * 60);
/// Sources that are counted separately. An entry is not evicted for another source before it
/// expires, because its source would get all its attempts back. Further sources count in the total
/// only, and their answers are delayed.
const MAX_SOURCES: usize = 4096;
/// The delay of the answer to a wrong attempt after too many of all sources. Locking out every
/// source instead would let an attacker deny service to the invited.
const DELAY: Duration = Duration::from_secs(2);

/// Counts wrong attempts.
pub(crate) struct Attempts {
    per_source: usize,
    total: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    sources: HashMap<IpAddr, Source>,
    /// The start of the current period, and the wrong attempts of all sources in it.
    all: Option<(Instant, usize)>,
}

struct Source {
    wrong: usize,
    until: Instant,
}

impl Attempts {
    /// `per_source` wrong attempts lock out a source; after `total` of all sources, answers are
    /// delayed.
    pub(crate) fn new(per_source: usize, total: usize) -> Self {
        Self { per_source, total, table: Mutex::default() }
    }

    /// The remaining time for which `source` is locked out; `None` if it may try.
    pub(crate) fn lockout(&self, source: IpAddr, now: Instant) -> Option<Duration> {
        self.lock().lockout(source, now, self.per_source)
    }

    /// Counts a wrong attempt, and returns the delay of its answer.
    ///
    /// # Errors
    /// The remaining time for which `source` is locked out.
    pub(crate) fn record(&self, source: IpAddr, now: Instant) -> Result<Duration, Duration> {
        let mut table = self.lock();
        if let Some(left) = table.lockout(source, now, self.per_source) {
            return Err(left);
        }
        table.sources.retain(|_, entry| entry.until > now);
        let delay = table.delay(now, self.total);
        if table.sources.len() >= MAX_SOURCES && !table.sources.contains_key(&source) {
            return Ok(DELAY);
        }
        let entry = table.sources.entry(source).or_insert(Source { wrong: 0, until: now });
        entry.wrong += 1;
        entry.until = now + LOCKOUT;
        Ok(delay)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Table {
    fn lockout(&self, source: IpAddr, now: Instant, most: usize) -> Option<Duration> {
        let entry = self.sources.get(&source).filter(|entry| entry.wrong >= most)?;
        Some(entry.until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    fn delay(&mut self, now: Instant, total: usize) -> Duration {
        let (since, count) = self.all.get_or_insert((now, 0));
        if now.duration_since(*since) > LOCKOUT {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        if *count > total { DELAY } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_wrong_attempts_lock_out_one_source_for_ten_minutes() {
        let attempts = Attempts::new(3, 1000);
        let [bad, good]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(attempts.lockout(bad, start), None);
            attempts.record(bad, start).unwrap();
        }
        assert_eq!(attempts.lockout(bad, start), Some(LOCKOUT));
        assert_eq!(attempts.record(bad, start), Err(LOCKOUT));
        assert_eq!(attempts.lockout(good, start), None);
        assert_eq!(attempts.lockout(bad, start + LOCKOUT), None);
    }

    #[test]
    fn memory_is_bounded_with_many_sources() {
        let attempts = Attempts::new(3, 1000);
        let now = Instant::now();
        for n in 0..2 * MAX_SOURCES as u32 {
            attempts.record(IpAddr::V4(n.into()), now).unwrap();
        }
        assert!(attempts.lock().sources.len() <= MAX_SOURCES);
    }

    #[test]
    fn attempts_of_other_sources_do_not_end_a_lockout() {
        let attempts = Attempts::new(3, 1000);
        let now = Instant::now();
        let bad = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..3 {
            attempts.record(bad, now).unwrap();
        }
        for n in 0..2 * MAX_SOURCES as u32 {
            attempts.record(IpAddr::V4(n.into()), now).unwrap();
        }
        assert_eq!(attempts.lockout(bad, now), Some(LOCKOUT));
    }
}
