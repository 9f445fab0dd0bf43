//! Starts sessions. The right is checked and the use is counted on disk before the service runs. Revocation and termination of
//! the session end its run here.

use std::time::Duration;

use levada_capability::{Operation as Right, Verified};
use levada_core::Params;
use levada_core::wire::answer::Answer;
use levada_core::wire::{self, Reason, Refusal};
use levada_service::{Invocation, ServiceError, Streams};
use levada_session::{Stream, StreamAborter};
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::live::SessionGuard;
use crate::services::Offered;
use crate::store::NewAuditEntry;

use super::RequestContext;
use super::start::{Admitted, Start};

/// Serves one start of a session to its end.
pub(super) async fn serve(
    context: &RequestContext<'_>,
    presentation: wire::Presentation,
    mut stream: Stream,
) {
    let start = match context.verify_start(presentation).await {
        Ok(start) => start,
        Err(refusal) => return refuse(context, "connect", &mut stream, refusal).await,
    };
    let admitted = context.admit(&start, |store, start, now| store.start(start, now)).await;
    match admitted {
        Ok(admitted) => {
            run_to_end(context, "connect", start, admitted, stream, Answer::Started).await
        }
        Err(refusal) => refuse(context, "connect", &mut stream, refusal).await,
    }
}

impl RequestContext<'_> {
    /// Verifies a presentation, and returns the start that it requests.
    async fn verify_start(&self, presentation: wire::Presentation) -> Result<Start, Refusal> {
        let expected = presentation.service.clone();
        let (mut verified, record) = self.verify(presentation, Right::Connect).await?;
        if !expected.is_empty() && expected != record.service {
            return Err(Refusal::new(Reason::Foreign, "the session is not one of that service"));
        }
        verified.params = verified.params.without(Params::NONCE);
        let (framing, requester) = (record.framing, record.requester);
        Ok(Start { verified, service: record.service, framing, requester })
    }
}

/// Answers the client and runs the service until its end. `answer` wraps `Started` into the answer of the operation.
pub(super) async fn run_to_end(
    context: &RequestContext<'_>,
    operation: &'static str,
    start: Start,
    admitted: Admitted<'_>,
    mut stream: Stream,
    answer: impl FnOnce(wire::Started) -> wire::answer::Answer,
) {
    let Admitted { offered, mut guard } = admitted;
    let node = context.node;
    context.slot.mark_proved(context.connection);
    let _count = context.slot.count_session();
    // Registered before the client receives the answer, after which it may open further streams.
    let (run_guard, streams) = context.slot.runs.register(context.connection, node.limits.streams);
    let session = start.verified.session.as_bytes().to_vec();
    context.record_outcome(operation, None);
    let mut message =
        wire::Answer::from(answer(wire::Started { session, run: run_guard.number() }));
    let bytes = Zeroizing::new(wire::encode(&message));
    super::zeroize_secret(&mut message);
    if stream.send(&bytes).await.is_err() {
        return;
    }
    let outcome = run(context, offered, &start.verified, (stream, streams), &mut guard).await;
    drop((run_guard, guard));
    record_end(context, &start, outcome).await;
}

/// Runs the service until it ends, another task ends the session, or the connection ends. Dropping the service's future ends
/// everything that it started, including further streams. Returns the outcome for the audit log.
async fn run(
    context: &RequestContext<'_>,
    offered: &Offered,
    verified: &Verified,
    (stream, streams): (Stream, Streams),
    guard: &mut SessionGuard<'_>,
) -> &'static str {
    let aborter = stream.aborter();
    let invocation = Invocation {
        session: verified.session,
        holder: verified.holder,
        params: verified.params.clone(),
        streams,
    };
    let service = offered.service.run(invocation, stream);
    // The stream is reset with the reason before the service, which owns it, is dropped.
    let ended_by_node = async {
        let reason = tokio::select! {
            ended = &mut guard.ended => ended.unwrap_or(Reason::Failed),
            () = run_time_over(verified.max_run) => Reason::Expired,
        };
        reset_stream(&aborter, reason)
    };
    tokio::select! {
        // A stopping node ends sessions and connections almost at once: the first cause is recorded.
        biased;
        outcome = ended_by_node => outcome,
        result = service => service_outcome(context, result),
        _ = context.connection.closed() => "the client went away",
    }
}

/// Waits for `max_run` seconds; forever if there is no limit.
async fn run_time_over(max_run: Option<u64>) {
    match max_run {
        Some(seconds) => sleep(Duration::from_secs(seconds)).await,
        None => std::future::pending().await,
    }
}

fn service_outcome(context: &RequestContext<'_>, result: Result<(), ServiceError>) -> &'static str {
    match result {
        Ok(()) => "ended",
        Err(ServiceError::Gone | ServiceError::Stream(_)) => "the client went away",
        Err(error) => {
            let (service, session) = context.log_fields();
            tracing::warn!(peer = %context.peer, service, session, %error, "a session failed");
            "failed"
        }
    }
}

fn reset_stream(aborter: &StreamAborter, reason: Reason) -> &'static str {
    aborter.reset(reason as u64);
    match reason {
        Reason::Revoked => "revoked",
        Reason::Terminated => "terminated",
        Reason::Expired => "its running time was over",
        _ => "ended by the node",
    }
}

/// Records the end of a run in the audit log.
async fn record_end(context: &RequestContext<'_>, start: &Start, outcome: &'static str) {
    let Ok(now) = context.now().await else { return };
    let (identity, session) = (context.peer, start.verified.session);
    let (service, link) = (start.service.clone(), start.verified.ids.last().copied());
    let recorded = context.node.with_store(move |store| {
        let entry = NewAuditEntry {
            identity: Some(identity),
            service: Some(&service),
            session: Some(session),
            link,
            ..NewAuditEntry::new("end", outcome)
        };
        store.record(&entry, now)
    });
    if let Err(error) = recorded.await {
        tracing::error!(%error, "could not write the end of a session to the audit log");
    }
}

pub(super) async fn refuse(
    context: &RequestContext<'_>,
    operation: &'static str,
    stream: &mut Stream,
    refusal: Refusal,
) {
    context.record_outcome(operation, Some(&refusal));
    super::send_answer(stream, refusal.into()).await;
}
