//! The names of pinned keys, for log lines: a name stands before its key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use levada_core::Identity;
use levada_home::known::Known;

/// The names in `known.db` when they were read last: each operation has a log line, which must not
/// read a file.
#[derive(Default)]
pub(crate) struct PinnedNames(Mutex<HashMap<Identity, Arc<str>>>);

impl PinnedNames {
    /// The name of `identity`, the oldest if it has several.
    pub(crate) fn of(&self, identity: &Identity) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(identity).cloned()
    }

    /// Reads the names again. To be called in the blocking pool. Names that cannot be read stay.
    pub(crate) fn read(&self, known: &Known) {
        let Ok(names) = known.name_of_each() else { return };
        let names = names.into_iter().map(|(identity, name)| (identity, name.into())).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }
}
