//! Limits the log lines about peers that have not proved a right: the first few of each source are
//! written, the others are counted for a summary. So a flood of operations does not become a flood
//! of lines.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines of one source between two summaries.
const MAX_LINES: u64 = 8;
/// Lines of all sources between two summaries.
const MAX_ALL_LINES: u64 = 64;
/// Sources that a summary lists.
const MAX_LISTED: usize = 10;
/// Sources that are counted separately between two summaries; the others are counted together.
const MAX_SOURCES: usize = 1024;

/// Counts events of peers without a right.
#[derive(Default)]
pub(crate) struct LogLimiter(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Events, and how many of them were logged.
    sources: HashMap<IpAddr, (u64, u64)>,
    others: u64,
    lines: u64,
}

/// How many lines were suppressed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Of the [`MAX_LISTED`] sources with the most of them, in descending order.
    pub(crate) sources: Vec<(IpAddr, u64)>,
    /// Of all other sources.
    pub(crate) others: u64,
}

impl LogLimiter {
    /// Counts an event of `source`, and returns whether to log it.
    pub(crate) fn should_log(&self, source: IpAddr) -> bool {
        let mut table = self.lock();
        if table.sources.len() >= MAX_SOURCES && !table.sources.contains_key(&source) {
            table.others += 1;
            return false;
        }
        let free = table.lines < MAX_ALL_LINES;
        let (events, lines) = table.sources.entry(source).or_default();
        *events += 1;
        let is_logged = free && *lines < MAX_LINES;
        *lines += u64::from(is_logged);
        table.lines += u64::from(is_logged);
        is_logged
    }

    /// The lines that were suppressed since the last call.
    pub(crate) fn take(&self) -> Summary {
        let table = std::mem::take(&mut *self.lock());
        let suppressed = |(source, (events, lines)): (IpAddr, (u64, u64))| (source, events - lines);
        let mut sources: Vec<_> = table.sources.into_iter().map(suppressed).collect();
        sources.retain(|(_, count)| *count > 0);
        sources.sort_by_key(|(source, count)| (std::cmp::Reverse(*count), *source));
        let rest = sources.split_off(MAX_LISTED.min(sources.len()));
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
    fn a_flood_has_few_lines_and_a_summary() {
        let limiter = LogLimiter::default();
        let source = IpAddr::from([192, 0, 2, 1]);
        let lines = (0..100_000).filter(|_| limiter.should_log(source)).count();
        assert_eq!(lines, 8);
        assert!(
            limiter.should_log(IpAddr::from([192, 0, 2, 2])),
            "another source has its own lines"
        );
        let summary = limiter.take();
        assert_eq!(summary, Summary { sources: vec![(source, 99_992)], others: 0 });
        assert_eq!(limiter.take(), Summary::default());
    }

    #[test]
    fn memory_is_bounded_with_many_sources() {
        let limiter = LogLimiter::default();
        for n in 0..10_000_u32 {
            limiter.should_log(IpAddr::V4(n.into()));
        }
        assert_eq!(limiter.lock().sources.len(), MAX_SOURCES);
        let summary = limiter.take();
        let named: u64 = summary.sources.iter().map(|(_, count)| count).sum();
        assert_eq!(
            (summary.sources.len(), summary.others + named),
            (MAX_LISTED, 10_000 - MAX_ALL_LINES)
        );
    }
}
