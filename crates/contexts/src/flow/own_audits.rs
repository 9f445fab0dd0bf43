//! The audits that a middlebox sends.

use crate::audit::{self, Counters, Digests, Kind};
use crate::path::Path;
use crate::schedule::Secret;

/// The audits of this middlebox, and the records since the last one.
pub(super) struct OwnAudits {
    key: Secret,
    /// Earlier audits.
    count: u64,
    /// Records as they arrived.
    pub(super) arrived: Digests,
    /// Records as they left.
    pub(super) left: Digests,
}

impl OwnAudits {
    pub(super) fn new(path: &Path, key: Secret) -> Self {
        Self { key, count: 0, arrived: Digests::new(path), left: Digests::new(path) }
    }

    /// Appends the next audit, of hop `hop`.
    pub(super) fn put(
        &mut self,
        (hop, kind): (u8, Kind),
        (slots, exchange): (u64, u64),
        out: &mut Vec<u8>,
    ) {
        let counters = Counters { audits: self.count, slots, exchange };
        let digests = (&self.arrived, &self.left);
        audit::put(out, (hop, kind), digests, (&self.key, counters), &[]);
        // The digests run on over own answers, so that the server's next audit covers the rest.
        if !kind.is_own() {
            self.arrived.reset();
            self.left.reset();
        }
        self.count += 1;
    }
}
