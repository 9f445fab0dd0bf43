//! The metrics of `/metrics` (OpenMetrics text).

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Operations by name and outcome.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct OperationLabels {
    pub(crate) operation: &'static str,
    pub(crate) outcome: &'static str,
}

/// Handshakes by kind: full, or resumed from an earlier one.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HandshakeLabels {
    kind: &'static str,
}

/// The node's counters and gauges.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) operations: Family<OperationLabels, Counter>,
    handshakes: Family<HandshakeLabels, Counter>,
    pub(crate) handshakes_failed: Counter,
    pub(crate) half_open: Gauge,
    pub(crate) half_open_evicted: Counter,
    pub(crate) connections: Gauge,
    pub(crate) sessions: Gauge,
    pub(crate) operations_limited: Counter,
    pub(crate) unproved_memory: Gauge,
    pub(crate) unproved_closed: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("levada");
        let operations = Family::<OperationLabels, Counter>::default();
        registry.register("operations", "Operations by outcome", operations.clone());
        let handshakes = Family::<HandshakeLabels, Counter>::default();
        registry.register("handshakes", "Handshakes that succeeded", handshakes.clone());
        let handshakes_failed = Counter::default();
        let help = "Handshakes that failed or timed out";
        registry.register("handshakes_failed", help, handshakes_failed.clone());
        let half_open = Gauge::default();
        registry.register("half_open", "Connections in their handshake", half_open.clone());
        let half_open_evicted = Counter::default();
        let help = "Handshakes evicted for newer ones";
        registry.register("half_open_evicted", help, half_open_evicted.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections", connections.clone());
        let sessions = Gauge::default();
        registry.register("sessions", "Running sessions", sessions.clone());
        let operations_limited = Counter::default();
        let help = "Operations of peers without a right that were refused because their source had too many";
        registry.register("operations_limited", help, operations_limited.clone());
        let unproved_memory = Gauge::default();
        let help = "Bytes held for connections whose peers have not proved a right";
        registry.register("unproved_memory_bytes", help, unproved_memory.clone());
        let unproved_closed = Counter::default();
        let help = "Connections of such peers that were closed because they held too much";
        registry.register("unproved_closed", help, unproved_closed.clone());
        Self {
            registry,
            operations,
            handshakes,
            handshakes_failed,
            half_open,
            half_open_evicted,
            connections,
            sessions,
            operations_limited,
            unproved_memory,
            unproved_closed,
        }
    }

    pub(crate) fn operation(&self, operation: &'static str, outcome: &'static str) {
        self.operations.get_or_create(&OperationLabels { operation, outcome }).inc();
    }

    /// The counter of successful handshakes, full or resumed.
    pub(crate) fn handshakes(&self, resumed: bool) -> Counter {
        let kind = if resumed { "resumed" } else { "full" };
        self.handshakes.get_or_create(&HandshakeLabels { kind }).clone()
    }

    /// All metrics as OpenMetrics text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
