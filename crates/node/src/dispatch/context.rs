//! The peer of an operation with its connection: receives the operation, limits its rate, and
//! records its outcome.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use levada_capability::SessionId;
use levada_core::Identity;
use levada_core::wire::{self, Reason, Refusal, operation::Operation};
use levada_session::Stream;
use tokio::time::{sleep, timeout};
use tracing::field::{DisplayValue, display};
use zeroize::Zeroizing;

use crate::carrier::Carrier;
use crate::connections::ConnectionSlot;
use crate::node::Node;
use crate::peers::OPERATION_TIMEOUT;
use crate::store::Store;

/// The minimum wait of an operation whose source exceeds its rate. A shorter one would cost the
/// node more than serving the operation.
const MIN_RATE_WAIT: Duration = Duration::from_millis(250);

/// The result of an operation, from which its answer is made.
pub(super) type OperationResult = Result<wire::answer::Answer, Refusal>;

/// The peer of an operation, and its connection.
pub(super) struct RequestContext {
    pub(super) node: Arc<Node>,
    pub(super) connection: Arc<dyn Carrier>,
    pub(super) peer: Identity,
    pub(super) slot: ConnectionSlot,
    pub(super) subject: LogSubject,
}

/// The service, the session and the receipt of an operation, for log lines and metrics; set as soon
/// as they are known.
#[derive(Default)]
pub(super) struct LogSubject {
    pub(super) service: OnceLock<String>,
    pub(super) session: OnceLock<SessionId>,
    pub(super) received: OnceLock<Instant>,
}

impl RequestContext {
    /// Receives the peer's operation. `None` if the stream failed; the inner `None` stands for no
    /// operation, or an unknown or malformed one.
    pub(super) async fn receive(&self, stream: &mut Stream) -> Option<Option<Operation>> {
        match timeout(OPERATION_TIMEOUT, stream.receive(wire::MAX_MESSAGE)).await {
            Ok(Ok(Some(bytes))) => {
                let bytes = Zeroizing::new(bytes);
                let message = wire::decode::<wire::Operation>(&bytes).ok();
                Some(message.and_then(|message| message.operation))
            }
            Ok(Ok(None)) | Err(_) => Some(None),
            Ok(Err(error)) => {
                let name = self.peer_name();
                tracing::debug!(name = name.as_deref(), peer = %self.peer, %error, "no operation received");
                None
            }
        }
    }

    /// Runs `work` in the blocking pool. An operation uses this at most once.
    pub(super) async fn on_store<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self, &Store) -> T + Send + 'static,
    ) -> T {
        let context = self.clone();
        self.node.with_store(move |store| work(&context, store)).await
    }

    /// Waits, for a peer without a right, until the rate of its source allows another operation.
    ///
    /// # Errors
    /// `Busy` if that would take longer than [`OPERATION_TIMEOUT`].
    pub(super) async fn wait_for_rate(&self) -> Result<(), Refusal> {
        let since = Instant::now();
        while !self.slot.is_proved() && self.connection.is_open() {
            let Err(wait) = self.node.peers.operations.take(self.slot.source) else { break };
            let wait = wait.max(MIN_RATE_WAIT);
            if since.elapsed() + wait > OPERATION_TIMEOUT {
                self.node.metrics.operations.limited.inc();
                let text = "too many operations from this address by peers without a right";
                return Err(Refusal::new(Reason::Busy, text));
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = self.connection.closed() => {}
            }
        }
        Ok(())
    }

    /// Counts an operation in the metrics and logs it, with its refusal if it was refused.
    pub(super) fn record_outcome(&self, operation: &'static str, refusal: Option<&Refusal>) {
        self.count(operation, refusal);
        if !self.slot.is_proved() && !self.node.peers.log_limiter.should_log(self.slot.source) {
            return;
        }
        let (service, session) = self.log_fields();
        let name = self.peer_name();
        let name = name.as_deref();
        let peer = self.peer;
        match refusal {
            None => tracing::info!(name, %peer, operation, service, session, "done"),
            Some(refusal) => {
                let text = &refusal.text;
                tracing::info!(name, %peer, operation, service, session, %text, "refused");
            }
        }
    }

    fn count(&self, operation: &'static str, refusal: Option<&Refusal>) {
        let metrics = &self.node.metrics;
        metrics.operations.count(operation, refusal.is_none());
        if let Some(refusal) = refusal {
            metrics.operations.refused(refusal.reason());
        }
        if let Some(received) = self.subject.received.get() {
            metrics.operations.observe(operation, received.elapsed());
        }
        if let Some(service) = self.subject.service.get() {
            metrics.services.operation(service, refusal.is_none());
        }
    }

    /// The name that is pinned for the peer, for log lines.
    pub(super) fn peer_name(&self) -> Option<Arc<str>> {
        self.node.peers.names.of(&self.peer)
    }

    /// Service and session for a log line; a field without a value is omitted.
    pub(super) fn log_fields(&self) -> (Option<&str>, Option<DisplayValue<&SessionId>>) {
        let LogSubject { service, session, .. } = &self.subject;
        (service.get().map(String::as_str), session.get().map(display))
    }
}
