//! The metrics of the node's state: its readiness, clock, disk, shares, forwards and middlebox.

use levada_transport::Traffic;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::disk::Disk;
use super::register::{counter, gauge, set, set_counter};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FromLabel {
    from: &'static str,
}

/// Readiness, clock and disk.
pub(crate) struct HealthMetrics {
    ready: Gauge,
    clock_jumped: Gauge,
    clock_behind: Gauge,
    disk_free: Gauge,
    disk_size: Gauge,
    database: Gauge,
}

impl HealthMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut gauge = |name: &str, help: &str| gauge(registry, name, help);
        let help = "1 while the clock is more than a day ahead of the stored time";
        let clock_jumped = gauge("clock_jumped", help);
        let help = "Time by which the clock is behind the stored time";
        let clock_behind = gauge("clock_behind_seconds", help);
        let help = "Space for the user of the node on the disk of its databases";
        let disk_free = gauge("disk_free_bytes", help);
        let disk_size = gauge("disk_size_bytes", "Size of the disk of the node's databases");
        Self {
            ready: gauge("ready", "1 if /readyz answers 200"),
            clock_jumped,
            clock_behind,
            disk_free,
            disk_size,
            database: gauge("database_bytes", "Length of node.db with its log"),
        }
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.set(ready.into());
    }

    pub(crate) fn set_clock(&self, jumped: bool, behind_seconds: u64) {
        self.clock_jumped.set(jumped.into());
        set(&self.clock_behind, behind_seconds);
    }

    pub(crate) fn set_disk(&self, disk: &Disk) {
        set(&self.disk_free, disk.free);
        set(&self.disk_size, disk.size);
        set(&self.database, disk.database);
    }
}

/// The shares of the node.
pub(crate) struct ShareMetrics {
    served: Gauge,
    not_served: Gauge,
    bytes: Gauge,
    peers: Gauge,
}

/// Numbers of the node's shares at one time.
pub(crate) struct ShareCounts {
    pub(crate) served: usize,
    pub(crate) not_served: usize,
    pub(crate) bytes: u64,
    pub(crate) peers: usize,
}

impl ShareMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut gauge = |name: &str, help: &str| gauge(registry, name, help);
        Self {
            served: gauge("shares", "Shares that the node serves"),
            not_served: gauge("shares_not_served", "Shares that the node cannot serve"),
            bytes: gauge("share_content_bytes", "Bytes of the contents of served shares"),
            peers: gauge("share_peers", "Peers of all shares"),
        }
    }

    pub(crate) fn refresh(&self, counts: &ShareCounts) {
        set(&self.served, counts.served as u64);
        set(&self.not_served, counts.not_served as u64);
        set(&self.bytes, counts.bytes);
        set(&self.peers, counts.peers as u64);
    }
}

/// The forwards of the configuration.
pub(crate) struct ForwardMetrics {
    states: Family<StateLabel, Gauge>,
    open: Gauge,
    connections: Counter,
    sent: Counter,
    received: Counter,
}

impl ForwardMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let states = Family::<StateLabel, Gauge>::default();
        registry.register("forwards", "Forwards of the configuration by state", states.clone());
        let help = "Connections that are carried now";
        let open = gauge(registry, "forward_open_connections", help);
        let mut counter = |name: &str, help: &str| counter(registry, name, help);
        let connections = counter("forward_connections", "Connections that were carried");
        let sent = counter("forward_sent_bytes", "Bytes sent to the nodes of forwards");
        let received = counter("forward_received_bytes", "Bytes received from them");
        Self { states, open, connections, sent, received }
    }

    /// Sets the number of forwards in a state.
    pub(crate) fn set_state(&self, state: &'static str, count: usize) {
        set(&self.states.get_or_create(&StateLabel { state }), count as u64);
    }

    pub(crate) fn refresh(&self, traffic: &Traffic) {
        set(&self.open, traffic.open());
        set_counter(&self.connections, traffic.opened());
        set_counter(&self.sent, traffic.sent());
        set_counter(&self.received, traffic.received());
    }
}

/// The middlebox that the node is.
pub(crate) struct MiddleboxMetrics {
    sessions: Gauge,
    connections: Counter,
    /// Sessions that have failed.
    pub(crate) failed: Counter,
    from_clients: Counter,
    from_servers: Counter,
}

impl MiddleboxMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let received = Family::<FromLabel, Counter>::default();
        let help = "Bytes that a middlebox has received, by side";
        registry.register("middlebox_received_bytes", help, received.clone());
        let from = |from| received.get_or_create_owned(&FromLabel { from });
        let help = "Sessions that a middlebox carries now";
        let sessions = gauge(registry, "middlebox_sessions", help);
        let mut counter = |name: &str, help: &str| counter(registry, name, help);
        let help = "Connections of clients that a middlebox has accepted";
        let connections = counter("middlebox_connections", help);
        let failed = counter("middlebox_failed", "Sessions of a middlebox that have failed");
        let from_clients = from("client");
        let from_servers = from("server");
        Self { sessions, connections, failed, from_clients, from_servers }
    }

    /// Sets the metrics from the connections of the clients and those to the next parties.
    pub(crate) fn refresh(&self, sessions: usize, [clients, next]: [&Traffic; 2]) {
        set(&self.sessions, sessions as u64);
        set_counter(&self.connections, clients.opened());
        set_counter(&self.from_clients, clients.received());
        set_counter(&self.from_servers, next.received());
    }
}
