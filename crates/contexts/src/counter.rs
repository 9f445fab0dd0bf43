//! The own counters of middleboxes: each counts its records, and the parties behind it check them.

use super::ContextError;
use super::record::View;

/// Records that each middlebox may insert between two audits.
pub(crate) const MAX_INSERTED: u32 = 64;

/// The records of one middlebox in one direction.
#[derive(Clone, Copy, Default)]
pub(crate) struct OriginCounter {
    /// The counter that its next record must reach.
    next: u64,
    /// Records that it inserted since the last audit.
    inserted: u32,
}

impl OriginCounter {
    /// Counts a record: a middlebox's own counter only grows, and it inserts no more than it may
    /// between two audits. An endpoint has no counter.
    pub(crate) fn count(&mut self, view: &View) -> Result<(), ContextError> {
        if view.head.origin == 0 {
            return Ok(());
        }
        if view.q < self.next {
            return Err(ContextError::forged_by("a record with an old counter", view.head.origin));
        }
        self.add(view.q, view.head.slot)
    }

    /// Counts a record that this middlebox is about to seal. Returns its counter.
    pub(crate) fn take(&mut self, slot: bool) -> Result<u64, ContextError> {
        let q = self.next;
        self.add(q, slot)?;
        Ok(q)
    }

    fn add(&mut self, q: u64, slot: bool) -> Result<(), ContextError> {
        self.next = q.saturating_add(1);
        self.inserted += u32::from(!slot);
        if self.inserted > MAX_INSERTED {
            return Err(ContextError::Flood("inserted records"));
        }
        Ok(())
    }

    /// An audit has come.
    pub(crate) fn audited(&mut self) {
        self.inserted = 0;
    }
}
