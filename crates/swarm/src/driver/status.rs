//! The state of a share, for those who watch it.

use std::time::Duration;

use levada_core::Identity;

use crate::mediated::Counters;

/// The work of a share so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareStatus {
    /// The identities of the peers that are there, and how many chunks each has reported.
    pub peers: Vec<(Identity, u64)>,
    /// Those of them to which others can connect.
    pub reachable: Vec<Identity>,
    /// Those of them that have one stream over QUIC.
    pub over_udp: Vec<Identity>,
    /// Peers that were expelled for wrong bytes.
    pub expelled: Vec<Identity>,
    /// Bytes of chunks that the coordinator has sent.
    pub sent: u64,
    /// Bytes of chunks sent in a second, of the last five.
    pub sent_rate: u64,
    /// In mediated mode, bytes of chunks fetched from providers in a second, of the last five.
    pub received_rate: u64,
    /// Chunks that cannot be read any more, and why.
    pub unreadable: Vec<(u32, String)>,
    /// In mediated mode, the chunks that were read, fetched and sent.
    pub counters: Counters,
    /// In mediated mode, the time since every chunk had left once.
    pub distributed_for: Option<Duration>,
}
