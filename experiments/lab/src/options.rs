//! The options of a lab.

use std::fmt;

/// The backend of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// The kernel's network emulator on a veth pair.
    Netem,
    /// A thread of this process between two TUN devices.
    User,
    /// The kernel's token bucket on a veth pair: a rate and a queue, nothing else.
    Tbf,
    /// A veth pair without emulation.
    Bare,
}

/// The options of a lab.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The backend of all links. `None`: for each link the simplest that supports it on this
    /// machine.
    pub backend: Option<Backend>,
    /// `tcp_congestion_control` in all nodes. `None`: the host's.
    pub congestion: Option<String>,
    /// `tcp_wmem` in all nodes: minimum, default and maximum bytes of a socket's send buffer.
    /// `None`: the host's.
    pub tcp_wmem: Option<[u32; 3]>,
    /// `tcp_rmem` in all nodes, as `tcp_wmem` for receiving.
    pub tcp_rmem: Option<[u32; 3]>,
    /// Further settings of all nodes: names below `/proc/sys/net`, as `ipv4/tcp_sack`, and values.
    pub sysctls: Vec<(String, String)>,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Netem => "netem",
            Self::User => "user",
            Self::Tbf => "tbf",
            Self::Bare => "bare",
        })
    }
}
