//! Serves one operation for each stream: reads it, checks the rights of the peer, performs it and answers. The handshake has
//! authenticated the peer; rights are checked for each operation.

mod admission;
mod connect;
mod exchange;
mod grant;
mod operations;
mod path;
mod start;
mod verify;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use levada_capability::SessionId;
use levada_client::operation_name;
use levada_core::Identity;
use levada_core::wire::{self, Answer, Reason, Refusal, operation::Operation};
use levada_session::{Connection, Stream};
use tokio::time::{sleep, timeout};
use tracing::field::{DisplayValue, display};
use zeroize::{Zeroize, Zeroizing};

use crate::carrier::Carrier;
use crate::connections::ConnectionSlot;
use crate::node::Node;
use crate::store::{Store, StoreError};

/// The time in which a peer must send its operation after it has opened the stream.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum wait of an operation whose source exceeds its rate. A shorter one would cost the node more than serving the
/// operation.
const MIN_RATE_WAIT: Duration = Duration::from_millis(250);

pub(crate) use admission::Admissions;
pub(crate) use path::serve_path;

/// The result of an operation, from which its answer is made.
type OperationResult = Result<wire::answer::Answer, Refusal>;

/// The peer of an operation, and its connection.
struct RequestContext {
    node: Arc<Node>,
    connection: Carrier,
    peer: Identity,
    slot: ConnectionSlot,
    subject: LogSubject,
}

/// The service and the session of an operation, for log lines; set as soon as they are known.
#[derive(Default)]
struct LogSubject {
    service: OnceLock<String>,
    session: OnceLock<SessionId>,
}

/// Serves one stream to its end.
pub(crate) async fn serve_stream(
    node: Arc<Node>,
    connection: Connection,
    slot: ConnectionSlot,
    mut stream: Stream,
) {
    let peer = connection.peer();
    let subject = LogSubject::default();
    let connection = Carrier::Channel(connection);
    let context = Arc::new(RequestContext { node, connection, peer, slot, subject });
    // Bounds the memory of operations whose rights are not checked yet.
    let Ok(pending) = context.slot.pending_operations.acquire().await else { return };
    // The rate is taken before the operation is read, so that a stream that is opened and reset counts, too.
    if let Err(refusal) = context.wait_for_rate().await {
        context.record_outcome("unread", Some(&refusal));
        return send_answer(&mut stream, refusal.into()).await;
    }
    let Some(operation) = context.receive(&mut stream).await else { return };
    let name = operation.as_ref().map_or("unknown", operation_name);
    drop(pending);
    if !context.connection.is_open() {
        return;
    }
    let Some(operation) = operation else {
        let refusal = Refusal::new(Reason::Malformed, "unknown operation");
        context.record_outcome(name, Some(&refusal));
        return send_answer(&mut stream, refusal.into()).await;
    };
    // This needs no check of the policy: when a peer is blocked, its runs end.
    if let Operation::Attach(attach) = operation {
        let attached = context.slot.runs.attach(attach.run, stream);
        context.node.metrics.operation(name, if attached.is_ok() { "done" } else { "refused" });
        tracing::debug!(peer = %context.peer, ?attached, "a further stream");
        return;
    }
    // The policy may have changed since the handshake.
    if let Some(text) = context.node.denial_reason(&context.peer) {
        let refusal = denied(text);
        context.record_outcome(name, Some(&refusal));
        return send_answer(&mut stream, refusal.into()).await;
    }
    let result = match operation {
        Operation::Connect(presentation) => {
            return connect::serve(&context, presentation, stream).await;
        }
        Operation::Start(request) => return grant::serve(&context, request, stream).await,
        Operation::Attach(_) => return,
        Operation::Query(query) => context.query(&query),
        Operation::Request(request) => context.request(request).await,
        Operation::Terminate(presentation) => context.terminate(presentation).await,
        Operation::Revoke(presentation) => context.revoke(presentation).await,
        Operation::Join(join) => context.join(join).await,
        Operation::Succession(succession) => context.succession(&succession).await,
        Operation::Successor(successor) => context.successor(&successor).await,
        Operation::Requested(_) => context.requested().await,
        Operation::Exchange(exchange) => context.exchange(exchange).await,
    };
    context.record_outcome(name, result.as_ref().err());
    let message = result.map_or_else(Answer::from, Answer::from);
    send_answer(&mut stream, message).await;
}

impl RequestContext {
    /// Receives the peer's operation. `None` if the stream failed; the inner `None` stands for no operation, or an unknown or
    /// malformed one.
    async fn receive(&self, stream: &mut Stream) -> Option<Option<Operation>> {
        match timeout(OPERATION_TIMEOUT, stream.receive(wire::MAX_MESSAGE)).await {
            Ok(Ok(Some(bytes))) => {
                let bytes = Zeroizing::new(bytes);
                let message = wire::decode::<wire::Operation>(&bytes).ok();
                Some(message.and_then(|message| message.operation))
            }
            Ok(Ok(None)) | Err(_) => Some(None),
            Ok(Err(error)) => {
                tracing::debug!(peer = %self.peer, %error, "no operation received");
                None
            }
        }
    }

    /// Runs `work` in the blocking pool. An operation uses this at most once.
    async fn on_store<T: Send + 'static>(
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
    async fn wait_for_rate(&self) -> Result<(), Refusal> {
        let since = Instant::now();
        while !self.slot.is_proved() && self.connection.is_open() {
            let Err(wait) = self.node.operations.take(self.slot.source) else { break };
            let wait = wait.max(MIN_RATE_WAIT);
            if since.elapsed() + wait > OPERATION_TIMEOUT {
                self.node.metrics.operations_limited.inc();
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
    fn record_outcome(&self, operation: &'static str, refusal: Option<&Refusal>) {
        let outcome = if refusal.is_none() { "done" } else { "refused" };
        self.node.metrics.operation(operation, outcome);
        if !self.slot.is_proved() && !self.node.log_limiter.should_log(self.slot.source) {
            return;
        }
        let (service, session) = self.log_fields();
        match refusal {
            None => tracing::info!(peer = %self.peer, operation, service, session, "done"),
            Some(refusal) => {
                let text = &refusal.text;
                tracing::info!(peer = %self.peer, operation, service, session, %text, "refused");
            }
        }
    }

    /// Service and session for a log line; a field without a value is omitted.
    fn log_fields(&self) -> (Option<&str>, Option<DisplayValue<&SessionId>>) {
        let LogSubject { service, session } = &self.subject;
        (service.get().map(String::as_str), session.get().map(display))
    }
}

/// Sends an answer and waits until the peer has finished its direction. Dropping the stream earlier would reset it, and the
/// reset could overtake the answer.
async fn send_answer(stream: &mut Stream, mut answer: Answer) {
    let bytes = Zeroizing::new(wire::encode(&answer));
    zeroize_secret(&mut answer);
    let sent = async {
        stream.send(&bytes).await?;
        stream.finish().await?;
        let mut rest = [0; 64];
        while stream.read(&mut rest).await?.is_some() {}
        Ok::<_, levada_session::StreamError>(())
    };
    // A failure affects only this peer, which does not receive its answer.
    let _ = timeout(OPERATION_TIMEOUT, sent).await;
}

/// Zeroizes the copy of a secret in an answer that was encoded.
fn zeroize_secret(answer: &mut Answer) {
    match &mut answer.answer {
        Some(wire::answer::Answer::Granted(granted)) => granted.secret.zeroize(),
        Some(wire::answer::Answer::StartedAtOnce(at_once)) => {
            if let Some(granted) = &mut at_once.granted {
                granted.secret.zeroize();
            }
        }
        _ => {}
    }
}

/// The refusal for an error of the node. The log has the cause; the peer learns only whether the disk is full or read-only.
fn failed(error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::error!(%error, "an operation failed");
    let text = match error.downcast_ref::<StoreError>().and_then(StoreError::disk) {
        Some(disk) => format!("the node's disk is {disk}"),
        None => "internal error of the node: see its log".to_owned(),
    };
    Refusal::new(Reason::Failed, text)
}

fn denied(text: &str) -> Refusal {
    Refusal::new(Reason::Denied, text)
}
