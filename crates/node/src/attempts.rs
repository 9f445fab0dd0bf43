//! Attempts that may be abused are counted by source and in all: a secret cannot be guessed, the disk
//! cannot be filled, and one stranger cannot shut others out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a source is shut out, and how long wrong attempts are remembered.
const SHUT_OUT: Duration = Duration::from_secs(10 * 60);
/// Sources remembered at once. None of them is forgotten for another before its time: it would have all its attempts
/// back. Sources beyond them count in the total only, and their answers come late.
const MAX_SOURCES: usize = 4096;
/// How late a wrong attempt is answered when all sources together have made too many: shutting
/// everybody out would do the strangers' work.
const LATE: Duration = Duration::from_secs(2);

/// Counts wrong attempts.
pub(crate) struct Attempts {
    per_source: usize,
    total: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    sources: HashMap<IpAddr, Source>,
    /// Wrong attempts of all sources since then.
    all: Option<(Instant, usize)>,
}

struct Source {
    wrong: usize,
    until: Instant,
}

impl Attempts {
    /// `per_source` attempts shut a source out; after `total` of all sources answers come late.
    pub(crate) fn new(per_source: usize, total: usize) -> Self {
        Self { per_source, total, table: Mutex::default() }
    }

    /// For how much longer `source` is shut out; `None` if it may try.
    pub(crate) fn shut_out(&self, source: IpAddr, now: Instant) -> Option<Duration> {
        let table = self.lock();
        let entry = table.sources.get(&source)?;
        (entry.wrong >= self.per_source)
            .then(|| entry.until.saturating_duration_since(now))
            .filter(|left| !left.is_zero())
    }

    /// Counts an attempt and says how long its answer should wait.
    pub(crate) fn count(&self, source: IpAddr, now: Instant) -> Duration {
        let mut table = self.lock();
        table.sources.retain(|_, entry| entry.until > now);
        let delay = table.delay(now, self.total);
        if table.sources.len() >= MAX_SOURCES && !table.sources.contains_key(&source) {
            return LATE;
        }
        let entry = table.sources.entry(source).or_insert(Source { wrong: 0, until: now });
        entry.wrong += 1;
        entry.until = now + SHUT_OUT;
        delay
    }

    /// Takes back one attempt that was not wrong.
    pub(crate) fn forgive(&self, source: IpAddr) {
        if let Some(entry) = self.lock().sources.get_mut(&source) {
            entry.wrong = entry.wrong.saturating_sub(1);
        }
    }

    /// A right attempt forgets the wrong ones before it.
    pub(crate) fn right(&self, source: IpAddr) {
        self.lock().sources.remove(&source);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Table {
    fn delay(&mut self, now: Instant, total: usize) -> Duration {
        let (since, count) = self.all.get_or_insert((now, 0));
        if now.duration_since(*since) > SHUT_OUT {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        if *count > total { LATE } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_wrong_attempts_shut_one_source_out_for_ten_minutes() {
        let attempts = Attempts::new(3, 1000);
        let [bad, good]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(attempts.shut_out(bad, start), None);
            attempts.count(bad, start);
        }
        assert_eq!(attempts.shut_out(bad, start), Some(SHUT_OUT));
        assert_eq!(attempts.shut_out(good, start), None);
        assert_eq!(attempts.shut_out(bad, start + SHUT_OUT), None);
    }

    #[test]
    fn memory_is_bounded_whoever_tries() {
        let attempts = Attempts::new(3, 1000);
        let now = Instant::now();
        for n in 0..2 * MAX_SOURCES as u32 {
            attempts.count(IpAddr::V4(n.into()), now);
        }
        assert!(attempts.lock().sources.len() <= MAX_SOURCES);
    }

    #[test]
    fn many_other_sources_give_no_source_its_attempts_back() {
        let attempts = Attempts::new(3, 1000);
        let (now, bad) = (Instant::now(), IpAddr::from([192, 0, 2, 1]));
        for _ in 0..3 {
            attempts.count(bad, now);
        }
        for n in 0..2 * MAX_SOURCES as u32 {
            attempts.count(IpAddr::V4(n.into()), now);
        }
        assert_eq!(attempts.shut_out(bad, now), Some(SHUT_OUT));
    }
}
