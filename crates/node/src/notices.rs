//! Log lines about peers that have not proved a right: the first few of each source as they come, the others as a
//! sum. A flood of operations does not become a flood of lines.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines of one source, and of all, between two summaries.
const LINES: u64 = 8;
const ALL_LINES: u64 = 64;
/// Sources that a summary names.
const NAMED: usize = 10;
/// Sources that are counted by themselves between two summaries; the others are counted together.
const MAX_SOURCES: usize = 1024;

/// Counts what happened at the wish of peers without a right.
#[derive(Default)]
pub(crate) struct Notices(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Events, and lines among them.
    sources: HashMap<IpAddr, (u64, u64)>,
    others: u64,
    lines: u64,
}

/// How many lines were left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Of the ten sources with most of them, those first.
    pub(crate) sources: Vec<(IpAddr, u64)>,
    /// Of all further sources.
    pub(crate) others: u64,
}

impl Notices {
    /// Counts an event of `source`; whether it is worth a line of its own.
    pub(crate) fn note(&self, source: IpAddr) -> bool {
        let mut table = self.lock();
        if table.sources.len() >= MAX_SOURCES && !table.sources.contains_key(&source) {
            table.others += 1;
            return false;
        }
        let free = table.lines < ALL_LINES;
        let (events, lines) = table.sources.entry(source).or_default();
        *events += 1;
        let has_line = free && *lines < LINES;
        *lines += u64::from(has_line);
        table.lines += u64::from(has_line);
        has_line
    }

    /// What was left out since the last call.
    pub(crate) fn take(&self) -> Summary {
        let table = std::mem::take(&mut *self.lock());
        let left_out = |(source, (events, lines)): (IpAddr, (u64, u64))| (source, events - lines);
        let mut sources: Vec<_> = table.sources.into_iter().map(left_out).collect();
        sources.retain(|(_, count)| *count > 0);
        sources.sort_by_key(|(source, count)| (std::cmp::Reverse(*count), *source));
        let rest = sources.split_off(NAMED.min(sources.len()));
        let others = table.others + rest.iter().map(|(_, count)| count).sum::<u64>();
        Summary { sources, others }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_has_few_lines_and_a_sum() {
        let notices = Notices::default();
        let source = IpAddr::from([192, 0, 2, 1]);
        let lines = (0..100_000).filter(|_| notices.note(source)).count();
        assert_eq!(lines, 8);
        assert!(notices.note(IpAddr::from([192, 0, 2, 2])), "another source has its own lines");
        let summary = notices.take();
        assert_eq!(summary, Summary { sources: vec![(source, 99_992)], others: 0 });
        assert_eq!(notices.take(), Summary::default());
    }

    #[test]
    fn memory_is_bounded_with_many_sources() {
        let notices = Notices::default();
        for n in 0..10_000_u32 {
            notices.note(IpAddr::V4(n.into()));
        }
        assert_eq!(notices.lock().sources.len(), MAX_SOURCES);
        let summary = notices.take();
        let named: u64 = summary.sources.iter().map(|(_, count)| count).sum();
        assert_eq!((summary.sources.len(), summary.others + named), (NAMED, 10_000 - ALL_LINES));
    }
}
