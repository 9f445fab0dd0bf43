//! The form of an exchange without bytes.

use crate::record::Head;

/// How many records the current exchange has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    #[default]
    None,
    One(Head),
    More,
}

impl Shape {
    /// Adds a record, of another context than 0.
    pub(super) fn add(&mut self, head: Head) {
        *self = match self {
            Self::None => Self::One(head),
            _ => Self::More,
        };
    }

    /// Whether it is an exchange without bytes: one record in the context of the head, with SLOT,
    /// END and MARK.
    pub(super) fn is_empty_exchange(self, context: u8) -> bool {
        matches!(self, Self::One(head) if head.context == context && head.slot && head.end && head.mark)
    }
}
