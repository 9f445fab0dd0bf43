//! The two ends of a connection.

/// Which end of the connection this process is: it decides which ring it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The end that connected.
    Connector,
    /// The end that accepted.
    Acceptor,
}

impl Side {
    /// The number of the direction that it writes; the other one is 1 less this.
    #[inline]
    pub(crate) fn outbound(self) -> usize {
        usize::from(self == Self::Acceptor)
    }
}
