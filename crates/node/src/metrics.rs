//! The metrics of `/metrics` (OpenMetrics text). docs/running-a-node.md lists them.
//!
//! The values of labels are names in this code, or names of services that the node offers. None is
//! an identity, an address or a text of a peer, so a peer cannot add a time series.

mod disk;
mod histogram;
mod operations;
mod peers;
mod process;
mod register;
mod services;
mod state;

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use operations::OperationMetrics;
use peers::PeerMetrics;
use process::ProcessCollector;
use services::ServiceMetrics;
use state::{ForwardMetrics, HealthMetrics, MiddleboxMetrics, ShareMetrics};

pub(crate) use disk::Disk;
pub(crate) use peers::PeerCounts;
pub(crate) use state::ShareCounts;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// The node's counters, gauges and histograms.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) operations: OperationMetrics,
    pub(crate) peers: PeerMetrics,
    pub(crate) services: ServiceMetrics,
    pub(crate) health: HealthMetrics,
    pub(crate) shares: ShareMetrics,
    pub(crate) forwards: ForwardMetrics,
    pub(crate) middlebox: MiddleboxMetrics,
}

impl Metrics {
    /// The metrics of a node with services of these names.
    pub(crate) fn new<'a>(services: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Registry::default();
        all.register_collector(Box::new(ProcessCollector));
        let registry = all.sub_registry_with_prefix("levada");
        let version = env!("CARGO_PKG_VERSION");
        registry.register("build", "Version of levada", Info::new(BuildLabels { version }));
        Self {
            operations: OperationMetrics::register(registry),
            peers: PeerMetrics::register(registry),
            services: ServiceMetrics::register(registry, services),
            health: HealthMetrics::register(registry),
            shares: ShareMetrics::register(registry),
            forwards: ForwardMetrics::register(registry),
            middlebox: MiddleboxMetrics::register(registry),
            registry: all,
        }
    }

    /// All metrics as OpenMetrics text.
    pub(crate) fn text(&self, peers: &PeerCounts) -> String {
        self.peers.refresh(peers);
        self.services.refresh();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
