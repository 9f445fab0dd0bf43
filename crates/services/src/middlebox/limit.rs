//! Limits of what is open at a time, in all and for each source.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts what is open.
pub(super) struct SourceLimit {
    most: usize,
    most_of_source: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

impl SourceLimit {
    /// As many in all, and as many of one source.
    pub(super) fn new([most, most_of_source]: [usize; 2]) -> Arc<Self> {
        Arc::new(Self { most, most_of_source, open: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.lock().all
    }

    /// Counts one more of a source until the entry is dropped; None if a limit is reached.
    pub(super) fn enter(self: &Arc<Self>, source: IpAddr) -> Option<Entry> {
        let mut open = self.lock();
        let of_source = open.of.get(&source).copied().unwrap_or_default();
        if open.all >= self.most || of_source >= self.most_of_source {
            return None;
        }
        open.all += 1;
        open.of.insert(source, of_source + 1);
        Some(Entry { limit: self.clone(), source })
    }
}

/// One that is open.
pub(super) struct Entry {
    limit: Arc<SourceLimit>,
    source: IpAddr,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut open = self.limit.lock();
        open.all -= 1;
        if let Some(of_source) = open.of.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                open.of.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_and_all_sources_have_a_limit_and_an_end_makes_room() {
        let limit = SourceLimit::new([3, 2]);
        let [one, two, three] = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
        let first = limit.enter(one);
        let second = limit.enter(one);
        assert!(first.is_some() && second.is_some());
        assert!(limit.enter(one).is_none());
        let other = limit.enter(two);
        assert!(other.is_some());
        assert!(limit.enter(three).is_none());
        assert_eq!(limit.count(), 3);
        drop(first);
        assert!(limit.enter(one).is_some());
        drop((second, other));
        assert_eq!(limit.count(), 0);
        assert!(limit.lock().of.is_empty());
    }
}
