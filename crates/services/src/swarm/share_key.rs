//! What a share is found by.

/// The key of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ShareKey {
    /// Its number at the node.
    Number(i64),
    /// The root of its content: a package of a catalogue.
    Root([u8; 32]),
}
