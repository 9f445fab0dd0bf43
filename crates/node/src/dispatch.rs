//! One stream, one operation: read it, decide whether this peer may, do it, answer.
//! Whoever asks was proved by the handshake; what it may do is decided here, per operation.

mod connect;
mod grant;
mod operations;
mod start;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use levada_capability::SessionId;
use levada_client::operation_name;
use levada_core::wire::{self, Answer, Reason, Refusal, operation::Operation};
use levada_core::{Identity, UnixTime};
use levada_session::{Connection, Stream};
use tokio::time::{sleep, timeout};
use tracing::field::{DisplayValue, display};
use zeroize::{Zeroize, Zeroizing};

use crate::connections::Place;
use crate::node::Node;
use crate::store::StoreError;

/// How long a peer may take to send its operation once it has opened the stream.
pub(crate) const OPERATION: Duration = Duration::from_secs(10);

/// How long an operation waits at least before it is tried again, when its source has too many: many that wait
/// must not cost more than they would have.
const RETRY: Duration = Duration::from_millis(250);

/// What an operation is answered with.
type Verdict = Result<wire::answer::Answer, Refusal>;

/// Who asks, and over which connection.
struct Asker<'a> {
    node: &'a Arc<Node>,
    connection: &'a Connection,
    peer: Identity,
    place: &'a Place,
    concerned: Concerned,
}

/// What an operation turned out to concern, for the log.
#[derive(Default)]
struct Concerned {
    service: OnceLock<String>,
    session: OnceLock<SessionId>,
}

/// Serves one stream to its end.
pub(crate) async fn serve_stream(
    node: &Arc<Node>,
    connection: &Connection,
    place: &Place,
    mut stream: Stream,
) {
    let (peer, concerned) = (connection.peer(), Concerned::default());
    let asker = Asker { node, connection, peer, place, concerned };
    // An operation that is not decided yet takes memory that no right was proved for: only so many at once.
    let Ok(pending) = place.undecided.acquire().await else { return };
    // Before it is read: a stream that is opened and reset counts, too.
    if let Err(refusal) = asker.wait_for_rate().await {
        asker.count("unread", &Err(refusal.clone()));
        return answer(&mut stream, refusal.into()).await;
    }
    let Some(operation) = asker.receive(&mut stream).await else { return };
    let name = operation.as_ref().map_or("unknown", operation_name);
    drop(pending);
    if !connection.is_open() {
        return;
    }
    let Some(operation) = operation else {
        let refusal = Refusal::new(Reason::Malformed, "unknown operation");
        asker.count(name, &Err(refusal.clone()));
        return answer(&mut stream, refusal.into()).await;
    };
    // A peer that is blocked has no start any more: those end with the change of the policy.
    if let Operation::Attach(attach) = operation {
        let attached = place.runs.attach(attach.run, stream);
        node.metrics.operation(name, if attached.is_ok() { "done" } else { "refused" });
        tracing::debug!(peer = %asker.peer, ?attached, "a further stream");
        return;
    }
    // A policy that has changed since the handshake holds at once.
    if let Some(text) = node.shut_out(&asker.peer).await {
        asker.count(name, &Err(denied(&text)));
        return answer(&mut stream, denied(&text).into()).await;
    }
    let verdict = match operation {
        Operation::Connect(presentation) => {
            return connect::serve(&asker, presentation, stream).await;
        }
        Operation::Start(request) => return grant::serve(&asker, request, stream).await,
        Operation::Attach(_) => return,
        Operation::Query(query) => asker.query(&query),
        Operation::Request(request) => asker.request(request).await,
        Operation::Terminate(presentation) => asker.terminate(presentation).await,
        Operation::Revoke(presentation) => asker.revoke(presentation).await,
        Operation::Join(join) => asker.join(join).await,
        Operation::Succession(succession) => asker.succession(&succession).await,
        Operation::Successor(successor) => asker.successor(&successor),
        Operation::Requested(_) => asker.requested().await,
    };
    asker.count(name, &verdict);
    let message = verdict.map_or_else(Answer::from, Answer::from);
    answer(&mut stream, message).await;
}

impl Asker<'_> {
    /// The operation that the peer sends; the inner `None` is something else. `None`: the stream ended before.
    async fn receive(&self, stream: &mut Stream) -> Option<Option<Operation>> {
        match timeout(OPERATION, stream.receive(wire::MAX_MESSAGE)).await {
            Ok(Ok(Some(bytes))) => {
                let bytes = Zeroizing::new(bytes);
                let message = wire::decode::<wire::Operation>(&bytes).ok();
                Some(message.and_then(|message| message.operation))
            }
            Ok(Ok(None)) | Err(_) => Some(None),
            Ok(Err(error)) => {
                tracing::debug!(peer = %self.peer, %error, "no operation came");
                None
            }
        }
    }

    /// The time that holds for verdicts.
    async fn now(&self) -> Result<UnixTime, Refusal> {
        let clock = self.node.clock.now();
        let now = self.node.with_store(move |store| store.now_at_least(clock)).await;
        let now = now.map_err(|error| failed(&error))?;
        if now.jumped {
            tracing::warn!(
                clock = now.time.0,
                "the clock has jumped by more than a day; `levada doctor --accept-clock` takes it"
            );
        }
        Ok(now.time)
    }

    /// A peer without a right waits until its source may have another operation served.
    async fn wait_for_rate(&self) -> Result<(), Refusal> {
        let since = Instant::now();
        while !self.place.is_proved() && self.connection.is_open() {
            let Err(wait) = self.node.operations.take(self.place.source) else { break };
            let wait = wait.max(RETRY);
            if since.elapsed() + wait > OPERATION {
                self.node.metrics.operations_limited.inc();
                let text = "too many operations from this address by peers without a right";
                return Err(Refusal::new(Reason::Busy, text));
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = self.connection.closed() => {}
            }
        }
        Ok(())
    }

    fn count(&self, operation: &'static str, verdict: &Verdict) {
        self.count_outcome(operation, verdict.as_ref().err());
    }

    /// An operation that was done, or its refusal, for metrics and log.
    fn count_outcome(&self, operation: &'static str, refusal: Option<&Refusal>) {
        let outcome = if refusal.is_none() { "done" } else { "refused" };
        self.node.metrics.operation(operation, outcome);
        if !self.place.is_proved() && !self.node.notices.note(self.place.source) {
            return;
        }
        let (service, session) = self.concerned();
        match refusal {
            None => tracing::info!(peer = %self.peer, operation, service, session, "done"),
            Some(refusal) => {
                let text = &refusal.text;
                tracing::info!(peer = %self.peer, operation, service, session, %text, "refused");
            }
        }
    }

    /// Service and session for a line of the log; a field without a value is left out.
    fn concerned(&self) -> (Option<&str>, Option<DisplayValue<&SessionId>>) {
        let Concerned { service, session } = &self.concerned;
        (service.get().map(String::as_str), session.get().map(display))
    }
}

/// Sends an answer and waits until the peer has ended its side: dropping the stream before would
/// reset it, and could overtake the answer.
async fn answer(stream: &mut Stream, mut answer: Answer) {
    let bytes = Zeroizing::new(wire::encode(&answer));
    zeroize_secret(&mut answer);
    let sent = async {
        stream.send(&bytes).await?;
        stream.finish().await?;
        let mut rest = [0; 64];
        while stream.read(&mut rest).await?.is_some() {}
        Ok::<_, levada_session::StreamError>(())
    };
    // A peer that does not take its answer has lost only that.
    let _ = timeout(OPERATION, sent).await;
}

/// The bytes of an answer are made: its copy of a secret goes.
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

/// The node could not: the cause goes to the log. A peer is told only of a disk that takes nothing.
fn failed(error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::error!(%error, "an operation failed");
    let text = match error.downcast_ref::<StoreError>().and_then(StoreError::disk) {
        Some(disk) => format!("the node's disk is {disk}"),
        None => "an error of the node; its log says which".to_owned(),
    };
    Refusal::new(Reason::Failed, text)
}

fn denied(text: &str) -> Refusal {
    Refusal::new(Reason::Denied, text)
}
