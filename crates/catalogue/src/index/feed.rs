//! The last changes, for those who follow: so that many of them do not ask the store.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::store::Change;

/// How many are kept.
const KEPT: usize = 4096;

/// The changes behind a revision.
#[derive(Default)]
pub(super) struct Feed {
    /// Of all that came behind this revision, those that are shown are here.
    floor: u64,
    newest: u64,
    changes: VecDeque<Arc<Change>>,
}

impl Feed {
    /// Nothing is known but that this was the last change.
    pub fn behind(revision: u64) -> Self {
        Self { floor: revision, newest: revision, changes: VecDeque::new() }
    }

    /// Adds what came up to the revision `newest`.
    pub fn add(&mut self, changes: impl Iterator<Item = Change>, newest: u64) {
        self.changes.extend(changes.map(Arc::new));
        self.newest = newest;
        while self.changes.len() > KEPT {
            if let Some(oldest) = self.changes.pop_front() {
                self.floor = oldest.revision;
            }
        }
    }

    /// The changes behind `after`, at most `limit`, and the revision that whoever has them is at. None if they are
    /// not all here.
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
