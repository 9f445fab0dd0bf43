//! The last changes, in memory, so that many clients can follow them without reading the store.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::store::Change;

/// How many changes are kept.
const MAX_CHANGES: usize = 4096;

/// The last changes that are shown.
#[derive(Default)]
pub(super) struct Feed {
    /// All shown changes behind this revision are kept.
    floor: u64,
    newest: u64,
    changes: VecDeque<Arc<Change>>,
}

impl Feed {
    /// An empty feed that starts behind `revision`.
    pub fn starting_at(revision: u64) -> Self {
        Self { floor: revision, newest: revision, changes: VecDeque::new() }
    }

    /// Adds the changes up to the revision `newest`.
    pub fn add(&mut self, changes: impl Iterator<Item = Change>, newest: u64) {
        self.changes.extend(changes.map(Arc::new));
        self.newest = newest;
        while self.changes.len() > MAX_CHANGES {
            if let Some(oldest) = self.changes.pop_front() {
                self.floor = oldest.revision;
            }
        }
    }

    /// The changes behind the revision `after`, at most `limit`, and the revision that they reach.
    /// `None` if some of them are no longer kept.
    pub fn after(&self, after: u64, limit: usize) -> Option<(Vec<Arc<Change>>, u64)> {
        if !(self.floor..=self.newest).contains(&after) {
            return None;
        }
        let start = self.changes.partition_point(|change| change.revision <= after);
        let found: Vec<_> = self.changes.range(start..).take(limit).cloned().collect();
        let reached = match found.last() {
            Some(last) if found.len() == limit => last.revision,
            _ => self.newest,
        };
        Some((found, reached))
    }
}
