//! The options of `levada share`, in groups.

use std::time::Duration;

use clap::{Args, ValueEnum};
use levada_client::control::{ByUdp, ListingSettings, MediatedSettings};
use levada_core::{parse_duration, parse_size};
use levada_home::address::advertised;

use crate::failure::{Failure, USAGE};
use crate::output;

/// The mode of a share, and the settings of mediated mode.
#[derive(Debug, Args)]
pub(super) struct ModeOptions {
    /// Who passes chunks on: peers to each other, or the node from peer to peer
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Direct)]
    mode: Mode,

    /// Mediated: how many peers keep each chunk, so that the node need not read it again
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    replicas: u16,

    /// Mediated: how much of the content the node keeps in memory
    #[arg(long, value_name = "SIZE", default_value = "8Mi", value_parser = parse_size)]
    cache: u64,

    /// Mediated: how many peers are there before the first gets a chunk
    #[arg(long, value_name = "N", default_value_t = 1)]
    wait: u16,

    /// Mediated: which chunks each peer keeps: every n-th, or a range
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Placement::Stripes)]
    placement: Placement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Direct,
    Mediated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Placement {
    Stripes,
    Blocks,
}

impl ModeOptions {
    /// The settings of mediated mode, if it is chosen.
    pub(super) fn mediated(&self) -> Option<MediatedSettings> {
        let Mode::Mediated = self.mode else { return None };
        if self.replicas == 1 {
            output::note(
                "--replicas 1: a chunk is read again when the only peer that keeps it leaves",
            );
        }
        Some(MediatedSettings {
            replicas: self.replicas.into(),
            cache: self.cache,
            wait: self.wait.into(),
            in_blocks: self.placement == Placement::Blocks,
        })
    }
}

/// The transports of a share.
#[derive(Debug, Args)]
pub(super) struct TransportOptions {
    /// What carries control messages; with udp, QUIC, and the chunks go by TCP
    #[arg(long, value_name = "TRANSPORT", value_enum, default_value_t = Transport::Tcp)]
    control: Transport,

    /// What carries the chunks; with udp, QUIC, and control messages go by TCP
    #[arg(long, value_name = "TRANSPORT", value_enum, default_value_t = Transport::Tcp)]
    data: Transport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    Tcp,
    Udp,
}

impl TransportOptions {
    /// The stream that is carried by UDP.
    pub(super) fn by_udp(&self) -> Result<Option<ByUdp>, Failure> {
        match (self.control, self.data) {
            (Transport::Tcp, Transport::Tcp) => Ok(None),
            _ if !cfg!(feature = "udp") => {
                Err(Failure::new(USAGE, "this build of levada has no UDP"))
            }
            (Transport::Udp, Transport::Tcp) => Ok(Some(ByUdp::Control)),
            (Transport::Tcp, Transport::Udp) => Ok(Some(ByUdp::Data)),
            (Transport::Udp, Transport::Udp) => {
                Err(Failure::new(USAGE, "only one of --control and --data can be udp"))
            }
        }
    }
}

/// The metadata that is kept of the files of a folder.
#[derive(Debug, Args)]
pub(super) struct MetadataOptions {
    /// Leave out when the files of a folder were changed
    #[arg(long)]
    no_times: bool,

    /// Leave out the permissions of the files of a folder, except whether they can be executed
    #[arg(long)]
    no_modes: bool,
}

impl MetadataOptions {
    /// The settings of a folder's listing.
    pub(super) fn listing(&self) -> ListingSettings {
        ListingSettings { times: !self.no_times, modes: !self.no_modes }
    }
}

/// The terms of a ticket.
#[derive(Debug, Args)]
pub(super) struct TicketOptions {
    /// For how long the ticket is valid, such as 1h or 7d
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = parse_duration)]
    pub(super) expires: Duration,

    /// How many identities may use the ticket
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) peers: u32,

    /// The only identity that may use the ticket, or its name here
    #[arg(long, value_name = "IDENTITY")]
    pub(super) to: Option<String>,

    /// Where the node is reached from outside, before its own addresses: a DNS name or an address,
    /// and the port
    #[arg(long, value_name = "HOST:PORT", value_parser = advertised)]
    pub(super) address: Vec<String>,
}
