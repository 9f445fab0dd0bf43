//! The metrics of handshakes and connections.

use std::sync::Arc;

use levada_transport::Traffic;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::register::{counter, gauge, set, set_counter};

/// Handshakes by kind: full, or resumed from an earlier one.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HandshakeLabels {
    kind: &'static str,
}

/// The metrics of handshakes and connections.
pub(crate) struct PeerMetrics {
    handshakes: Family<HandshakeLabels, Counter>,
    pub(crate) handshakes_failed: Counter,
    half_open: Gauge,
    pub(crate) half_open_evicted: Counter,
    connections: Gauge,
    sessions: Gauge,
    unproved_memory: Gauge,
    unproved_closed: Counter,
    /// The bytes of accepted connections, as they are on the network.
    pub(crate) traffic: Arc<Traffic>,
    sent: Counter,
    received: Counter,
}

/// Numbers that the tables of peers have at one time.
pub(crate) struct PeerCounts {
    pub(crate) half_open: usize,
    pub(crate) connections: usize,
    pub(crate) sessions: usize,
    /// Bytes of connections whose peers have not proved a right.
    pub(crate) unproved_memory: usize,
    /// Such connections that were closed.
    pub(crate) unproved_closed: u64,
}

impl PeerMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let handshakes = Family::<HandshakeLabels, Counter>::default();
        registry.register("handshakes", "Handshakes that succeeded", handshakes.clone());
        for kind in ["full", "resumed"] {
            handshakes.get_or_create_owned(&HandshakeLabels { kind });
        }
        let mut counter = |name: &str, help: &str| counter(registry, name, help);
        let handshakes_failed = counter("handshakes_failed", "Handshakes that failed or timed out");
        let half_open_evicted = counter("half_open_evicted", "Handshakes evicted for newer ones");
        let help = "Connections of such peers that were closed because they held too much";
        let unproved_closed = counter("unproved_closed", help);
        let help = "Bytes sent on accepted connections, encrypted";
        let sent = counter("connection_sent_bytes", help);
        let help = "Bytes received on accepted connections, encrypted";
        let received = counter("connection_received_bytes", help);
        let help = "Bytes held for connections whose peers have not proved a right";
        Self {
            handshakes,
            handshakes_failed,
            half_open: gauge(registry, "half_open", "Connections in their handshake"),
            half_open_evicted,
            connections: gauge(registry, "connections", "Open connections"),
            sessions: gauge(registry, "sessions", "Running sessions"),
            unproved_memory: gauge(registry, "unproved_memory_bytes", help),
            unproved_closed,
            traffic: Arc::default(),
            sent,
            received,
        }
    }

    /// The counter of successful handshakes, full or resumed.
    pub(crate) fn handshakes(&self, resumed: bool) -> Counter {
        let kind = if resumed { "resumed" } else { "full" };
        self.handshakes.get_or_create_owned(&HandshakeLabels { kind })
    }

    /// Sets what is counted elsewhere.
    pub(super) fn refresh(&self, counts: &PeerCounts) {
        set(&self.half_open, counts.half_open as u64);
        set(&self.connections, counts.connections as u64);
        set(&self.sessions, counts.sessions as u64);
        set(&self.unproved_memory, counts.unproved_memory as u64);
        set_counter(&self.unproved_closed, counts.unproved_closed);
        set_counter(&self.sent, self.traffic.sent());
        set_counter(&self.received, self.traffic.received());
    }
}
