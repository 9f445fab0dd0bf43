//! What the reTHINK compatibility layer asks an index for.

use super::{Index, read};
use crate::model::Kind;
use crate::rethink::{Answer, Candidate, Conditions};

impl Index {
    /// The answer of the reTHINK compatibility layer to a path; with `conditions`, to a POST.
    pub fn rethink(&self, path: &[u8], conditions: Option<&Conditions>) -> Answer {
        read(&self.layer).answer(path, conditions)
    }

    /// The objects that a list with conditions may contain: see
    /// [`Catalogue::candidates`](crate::rethink::Catalogue::candidates).
    pub fn candidates(&self, kind: Kind, after: Option<&str>, limit: usize) -> Vec<Candidate> {
        read(&self.layer).candidates(kind, after, limit)
    }
}
