//! Which stream goes by UDP.

use clap::ValueEnum;
use levada_swarm::simulator::Recovery;

/// The transports of a share's two streams. The paper calls its two variants by the protocol of the
/// control messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Swap {
    /// Both streams by TCP
    #[default]
    None,
    /// `--control udp --data tcp`
    ControlByUdp,
    /// `--control tcp --data udp`
    ControlByTcp,
}

impl Swap {
    /// The protocol of control messages, and that of chunks.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("tcp", "tcp"),
            Self::ControlByUdp => ("udp", "tcp"),
            Self::ControlByTcp => ("tcp", "udp"),
        }
    }

    /// The stream that goes by UDP, for a process of the experiment.
    pub fn udp(self) -> &'static str {
        if self == Self::ControlByUdp { "control" } else { "data" }
    }

    /// What sends lost messages and chunks again: QUIC, or the fixed timers of the paper, in place
    /// of UDP.
    pub fn recovery(self, fixed_timers: bool) -> (Recovery, Recovery) {
        let udp = if fixed_timers { Recovery::FixedTimers } else { Recovery::Quic };
        match self {
            Self::None => (Recovery::Tcp, Recovery::Tcp),
            Self::ControlByUdp => (udp, Recovery::Tcp),
            Self::ControlByTcp => (Recovery::Tcp, udp),
        }
    }
}
