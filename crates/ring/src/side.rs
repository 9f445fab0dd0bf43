//! The two ends of a connection.

/// The end of a connection that a process has: it decides which ring the process writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The end that connected.
    Connector,
    /// The end that accepted.
    Acceptor,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Self; 2] = [Self::Connector, Self::Acceptor];

    /// The other side.
    pub fn other(self) -> Self {
        match self {
            Self::Connector => Self::Acceptor,
            Self::Acceptor => Self::Connector,
        }
    }

    /// The number of the direction that it writes; the other one is 1 less this.
    #[inline]
    pub(crate) fn outbound(self) -> usize {
        usize::from(self == Self::Acceptor)
    }
}
