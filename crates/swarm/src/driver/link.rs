//! The connection between two parties.

use levada_session::Stream;

/// The two streams between two parties, of one connection or of two.
pub struct Link {
    /// For control messages.
    pub control: Stream,
    /// For chunks.
    pub data: Stream,
}
