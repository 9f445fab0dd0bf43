//! The metrics of each service. Their labels are the names of the services that the node offers, so
//! that no peer adds one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use levada_transport::Traffic;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::histogram::Histogram;
use super::register::{DONE, REFUSED, set_counter};

/// The upper bounds for the durations of sessions, in seconds: from a command to days.
const SESSION_BOUNDS: &[f64] =
    &[0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6.0 * 3600.0, 24.0 * 3600.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServiceLabel {
    service: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    service: String,
    outcome: &'static str,
}

/// The metrics of all services.
pub(crate) struct ServiceMetrics(BTreeMap<String, OfService>);

/// The metrics of one service.
struct OfService {
    done: Counter,
    refused: Counter,
    running: Gauge,
    durations: Histogram,
    traffic: Arc<Traffic>,
    sent: Counter,
    received: Counter,
}

/// A running session of a service. Dropping it records the duration.
pub(crate) struct RunningSession {
    since: Instant,
    running: Gauge,
    durations: Histogram,
}

impl ServiceMetrics {
    /// The metrics of the services with these names.
    pub(super) fn register<'a>(
        registry: &mut Registry,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let operations = Family::<OutcomeLabels, Counter>::default();
        let help = "Operations about a service by outcome";
        registry.register("service_operations", help, operations.clone());
        let running = Family::<ServiceLabel, Gauge>::default();
        registry.register("service_sessions", "Running sessions of a service", running.clone());
        let new: fn() -> Histogram = || Histogram::new(SESSION_BOUNDS);
        let durations = Family::<ServiceLabel, Histogram, _>::new_with_constructor(new);
        let help = "Durations of sessions that have ended";
        registry.register("service_session_duration_seconds", help, durations.clone());
        let sent = Family::<ServiceLabel, Counter>::default();
        let help = "Bytes of messages that a service has sent";
        registry.register("service_sent_bytes", help, sent.clone());
        let received = Family::<ServiceLabel, Counter>::default();
        let help = "Bytes of messages that a service has received";
        registry.register("service_received_bytes", help, received.clone());
        let of_service = |name: &str| {
            let service = name.to_owned();
            let outcome = |outcome| {
                let service = service.clone();
                operations.get_or_create_owned(&OutcomeLabels { service, outcome })
            };
            let label = ServiceLabel { service: service.clone() };
            let of_service = OfService {
                done: outcome(DONE),
                refused: outcome(REFUSED),
                running: running.get_or_create_owned(&label),
                durations: durations.get_or_create_owned(&label),
                traffic: Arc::default(),
                sent: sent.get_or_create_owned(&label),
                received: received.get_or_create_owned(&label),
            };
            (service, of_service)
        };
        Self(names.into_iter().map(of_service).collect())
    }

    /// Counts an operation about a service. An unknown service is ignored.
    pub(crate) fn operation(&self, service: &str, is_done: bool) {
        let Some(of_service) = self.0.get(service) else { return };
        if is_done { &of_service.done } else { &of_service.refused }.inc();
    }

    /// Counts a session of a service until the result is dropped.
    pub(crate) fn start(&self, service: &str) -> Option<RunningSession> {
        let OfService { running, durations, .. } = self.0.get(service)?;
        running.inc();
        let since = Instant::now();
        Some(RunningSession { since, running: running.clone(), durations: durations.clone() })
    }

    /// The bytes of a service's messages.
    pub(crate) fn traffic(&self, service: &str) -> Option<&Arc<Traffic>> {
        self.0.get(service).map(|of_service| &of_service.traffic)
    }

    /// Sets the counters of bytes.
    pub(super) fn refresh(&self) {
        for OfService { traffic, sent, received, .. } in self.0.values() {
            set_counter(sent, traffic.sent());
            set_counter(received, traffic.received());
        }
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        self.running.dec();
        self.durations.observe(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_name_that_is_not_offered_makes_no_label() {
        let mut registry = Registry::default();
        let services = ServiceMetrics::register(&mut registry, ["exec"]);
        services.operation("guessed", false);
        assert!(services.start("guessed").is_none() && services.traffic("guessed").is_none());
        services.operation("exec", true);
        drop(services.start("exec"));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(!text.contains("guessed"), "{text}");
        let count = "service_session_duration_seconds_count{service=\"exec\"} 1";
        assert!(text.contains(count), "{text}");
    }
}
