//! Starts sessions. The right is checked and the use is counted on disk before the service runs.
//! Revocation and termination of the session end its run here.

use std::sync::Arc;
use std::time::Duration;

use levada_capability::{LinkId, Operation as Right, Presented, SWARM, SessionId};
use levada_core::Params;
use levada_core::wire::answer::Answer;
use levada_core::wire::{self, Reason, Refusal};
use levada_service::{Invocation, Over, Prepared, PreparedRun, RunFuture, ServiceError};
use levada_session::Stream;
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::decide::Basis;
use crate::live::SessionGuard;
use crate::store::{NewAuditEntry, Store};

use super::answer::{send_answer, zeroize_secret};
use super::context::RequestContext;
use super::refusal::unknown_service;
use super::start::{Admitted, Start, about, refused_params};

/// Serves one start of a session to its end.
pub(super) async fn serve(
    context: &Arc<RequestContext>,
    presentation: wire::Presentation,
    mut stream: Stream,
) {
    match context.connect(presentation).await {
        Ok(admitted) => run_to_end(context, "connect", admitted, stream, Answer::Started).await,
        Err(refusal) => refuse(context, "connect", &mut stream, refusal).await,
    }
}

impl RequestContext {
    async fn connect(
        self: &Arc<Self>,
        presentation: wire::Presentation,
    ) -> Result<Admitted<PreparedRun>, Refusal> {
        let expected = presentation.service.clone();
        let presented = self.decode(presentation)?;
        let admitted = self.on_store(move |context, store| {
            let start = context.verify_start(store, &presented, &expected)?;
            context.admit(start, |new| store.start(new, context.node.now()))
        });
        admitted.await
    }

    /// Verifies a presented capability, and returns the start that it requests, of the service
    /// `expected` unless that is empty.
    fn verify_start(
        &self,
        store: &Store,
        presented: &Presented,
        expected: &str,
    ) -> Result<Start<PreparedRun>, Refusal> {
        let (mut verified, record) = self.verify(store, presented, Right::Connect)?;
        let service = record.service;
        let requester = record.requester;
        let basis = Basis { rule: record.rule, needs_right: record.by_group.is_some() };
        if !expected.is_empty() && expected != service {
            return Err(Refusal::new(Reason::Foreign, "the session is not one of that service"));
        }
        let offered = match service.as_str() {
            SWARM => Some(&self.node.sharing.swarm),
            name => self.node.services.get(name),
        };
        let offered = offered.ok_or_else(|| unknown_service(&service, &[]))?;
        self.check_framing(record.framing)?;
        verified.params = verified.params.without(Params::NONCE);
        let run = offered.service.prepare(&verified.params, Over::Stream);
        let run = run.and_then(Prepared::into_stream).map_err(refused_params)?;
        let about = about(offered, &verified.params);
        Ok(Start { verified, service, requester, basis, about, granted: None, run })
    }
}

/// Answers the client and runs the service until its end. `answer` wraps `Started` into the answer
/// of the operation.
pub(super) async fn run_to_end(
    context: &Arc<RequestContext>,
    operation: &'static str,
    admitted: Admitted<PreparedRun>,
    mut stream: Stream,
    answer: impl FnOnce(wire::Started) -> wire::answer::Answer,
) {
    let Admitted { start: Start { verified, service, run, .. }, mut guard } = admitted;
    let node = &context.node;
    let session = verified.session;
    context.slot.mark_proved(&*context.connection);
    let _count = context.slot.count_session(service == SWARM);
    // Registered before the client receives the answer, after which it may open further streams.
    let (run_guard, streams) =
        context.slot.runs.register(&*context.connection, node.peers.limits.streams);
    if let Some(traffic) = node.metrics.services.traffic(&service) {
        streams.count_in(traffic);
        stream.count_in(traffic);
    }
    let counted = node.metrics.services.start(&service);
    context.record_outcome(operation, None);
    let started = wire::Started { session: session.as_bytes().to_vec(), run: run_guard.number() };
    let mut message = wire::Answer::from(answer(started));
    let bytes = Zeroizing::new(wire::encode(&message));
    zeroize_secret(&mut message);
    if stream.send(&bytes).await.is_err() {
        return;
    }
    let aborter = stream.aborter();
    let invocation = Invocation { session, holder: verified.holder, streams };
    let running = run.start(invocation, stream);
    let reset = |reason| aborter.reset(reason as u64);
    let outcome = run_until_end(context, running, verified.max_run, reset, &mut guard).await;
    drop((run_guard, guard, counted));
    record_end(context, session, service, verified.ids.last().copied(), outcome).await;
}

/// Runs the service until it ends, another task ends the session, or the connection ends. Dropping
/// the service's future ends everything that it started, including further streams. Returns the
/// outcome for the audit log.
pub(super) async fn run_until_end(
    context: &RequestContext,
    running: RunFuture,
    max_run: Option<u64>,
    reset: impl FnOnce(Reason),
    guard: &mut SessionGuard,
) -> &'static str {
    // The peer is told the reason before the service, which owns the stream, is dropped.
    let ended_by_node = async {
        let reason = tokio::select! {
            ended = &mut guard.ended => ended.unwrap_or(Reason::Failed),
            () = run_time_over(max_run) => Reason::Expired,
        };
        reset(reason);
        outcome_of(reason)
    };
    tokio::select! {
        // A stopping node ends sessions and connections almost at once: the first cause is
        // recorded.
        biased;
        outcome = ended_by_node => outcome,
        result = running => service_outcome(context, result),
        () = context.connection.closed() => "the client went away",
    }
}

/// Waits for `max_run` seconds; forever if there is no limit.
async fn run_time_over(max_run: Option<u64>) {
    match max_run {
        Some(seconds) => sleep(Duration::from_secs(seconds)).await,
        None => std::future::pending().await,
    }
}

fn service_outcome(context: &RequestContext, result: Result<(), ServiceError>) -> &'static str {
    match result {
        Ok(()) => "ended",
        Err(ServiceError::Gone | ServiceError::Stream(_)) => "the client went away",
        Err(error) => {
            let (service, session) = context.log_fields();
            let name = context.peer_name();
            let name = name.as_deref();
            let peer = context.peer;
            tracing::warn!(name, %peer, service, session, %error, "a session failed");
            "failed"
        }
    }
}

fn outcome_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Revoked => "revoked",
        Reason::Terminated => "terminated",
        Reason::Expired => "its running time was over",
        _ => "ended by the node",
    }
}

/// Records the end of a run in the log and the audit log.
pub(super) async fn record_end(
    context: &Arc<RequestContext>,
    session: SessionId,
    service: String,
    link: Option<LinkId>,
    outcome: &'static str,
) {
    let name = context.peer_name();
    let peer = context.peer;
    tracing::info!(name = name.as_deref(), %peer, service, %session, outcome, "session ended");
    let recorded = context.on_store(move |context, store| {
        let entry = NewAuditEntry {
            identity: Some(context.peer),
            service: Some(&service),
            session: Some(session),
            link,
            ..NewAuditEntry::new("end", outcome)
        };
        store.record(&entry, context.node.now())
    });
    if let Err(error) = recorded.await {
        tracing::error!(%error, "could not write the end of a session to the audit log");
    }
}

pub(super) async fn refuse(
    context: &RequestContext,
    operation: &'static str,
    stream: &mut Stream,
    refusal: Refusal,
) {
    context.record_outcome(operation, Some(&refusal));
    send_answer(stream, refusal.into()).await;
}
