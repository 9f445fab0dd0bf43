//! A word that can stand at the end of a command line.

/// A word, and its description, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) text: String,
    pub(super) help: String,
}

impl Candidate {
    /// A word without a description.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), help: String::new() }
    }
}
