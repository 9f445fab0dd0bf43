//! The audits that an endpoint sends.

use crate::audit::{self, AUDIT_EVERY, Counters, Digests, Kind};
use crate::path::Path;
use crate::record::Written;
use crate::schedule::{Secret, Tag};

/// The audits of an endpoint, and the records since the last one.
pub(super) struct Audits {
    /// Derived with the first audit.
    key: Option<Secret>,
    /// Earlier audits.
    pub(super) count: u64,
    digests: Digests,
    /// The number of records in the digests.
    records: u32,
}

impl Audits {
    pub(super) fn new(path: &Path) -> Self {
        Self { key: None, count: 0, digests: Digests::new(path), records: 0 }
    }

    /// Tells whether an audit must follow the next record.
    pub(super) fn is_due(&self) -> bool {
        self.records + 1 >= AUDIT_EVERY
    }

    /// Adds a record that was sealed.
    pub(super) fn add(&mut self, context: u8, written: &Written, tags: &[u8]) {
        self.digests.add(context, &written.meta[..5], 0, tags);
        self.records += 1;
    }

    /// Appends the next audit. `derive` gives the key, for the first one.
    pub(super) fn put(
        &mut self,
        (kind, counters): (Kind, Counters),
        endorsements: &[Tag],
        derive: impl FnOnce() -> Secret,
        out: &mut Vec<u8>,
    ) {
        let key = self.key.get_or_insert_with(derive);
        let digests = (&self.digests, &self.digests);
        audit::put(out, (0, kind), digests, (key, counters), endorsements);
        self.digests.reset();
        self.count += 1;
        self.records = 0;
    }
}
