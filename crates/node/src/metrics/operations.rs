//! The metrics of operations. Their labels are names in the code of the node.

use std::time::Duration;

use levada_core::wire::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::histogram::Histogram;
use super::register::{DONE, REFUSED, counter};

/// The upper bounds for the durations of operations, in seconds: from one in memory to the limit of
/// a wait.
const BOUNDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The reasons of refusals.
const REASONS: [Reason; 15] = [
    Reason::Unspecified,
    Reason::Denied,
    Reason::Unknown,
    Reason::Parameters,
    Reason::Malformed,
    Reason::Foreign,
    Reason::Forged,
    Reason::Expired,
    Reason::UsedUp,
    Reason::Revoked,
    Reason::Terminated,
    Reason::ShutOut,
    Reason::Busy,
    Reason::Failed,
    Reason::Framing,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The metrics of operations.
pub(crate) struct OperationMetrics {
    outcomes: Family<OutcomeLabels, Counter>,
    durations: Family<OperationLabel, Histogram, fn() -> Histogram>,
    refusals: Family<ReasonLabel, Counter>,
    /// Operations of peers without a right that were refused because of their number.
    pub(crate) limited: Counter,
}

impl OperationMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let outcomes = Family::<OutcomeLabels, Counter>::default();
        registry.register("operations", "Operations by outcome", outcomes.clone());
        let new: fn() -> Histogram = || Histogram::new(BOUNDS);
        let durations = Family::<OperationLabel, Histogram, _>::new_with_constructor(new);
        let help = "Durations of operations, from their receipt to their outcome";
        registry.register("operation_duration_seconds", help, durations.clone());
        let refusals = Family::<ReasonLabel, Counter>::default();
        registry.register("refusals", "Refused operations by reason", refusals.clone());
        for reason in REASONS {
            refusals.get_or_create_owned(&ReasonLabel { reason: name(reason) });
        }
        let help = "Operations of peers without a right that were refused because their source had too many";
        let limited = counter(registry, "operations_limited", help);
        Self { outcomes, durations, refusals, limited }
    }

    /// Counts an operation.
    pub(crate) fn count(&self, operation: &'static str, is_done: bool) {
        let outcome = if is_done { DONE } else { REFUSED };
        self.outcomes.get_or_create(&OutcomeLabels { operation, outcome }).inc();
    }

    /// Records the duration of an operation.
    pub(crate) fn observe(&self, operation: &'static str, duration: Duration) {
        self.durations.get_or_create(&OperationLabel { operation }).observe(duration);
    }

    /// Counts a refusal.
    pub(crate) fn refused(&self, reason: Reason) {
        self.refusals.get_or_create(&ReasonLabel { reason: name(reason) }).inc();
    }
}

fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Unspecified => "unspecified",
        Reason::Denied => "denied",
        Reason::Unknown => "unknown",
        Reason::Parameters => "parameters",
        Reason::Malformed => "malformed",
        Reason::Foreign => "foreign",
        Reason::Forged => "forged",
        Reason::Expired => "expired",
        Reason::UsedUp => "used_up",
        Reason::Revoked => "revoked",
        Reason::Terminated => "terminated",
        Reason::ShutOut => "locked_out",
        Reason::Busy => "busy",
        Reason::Failed => "failed",
        Reason::Framing => "framing",
    }
}
