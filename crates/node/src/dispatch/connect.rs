//! Starting a session: the right is checked, the use is counted and on disk, and only then the
//! service runs; whoever revokes or terminates the session ends it here.

use std::time::Duration;

use levada_capability::{Operation as Right, Verified};
use levada_core::Params;
use levada_core::wire::answer::Answer;
use levada_core::wire::{self, Reason, Refusal};
use levada_service::{Invocation, ServiceError, Streams};
use levada_session::{Stream, StreamAborter};
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::live::Ticket;
use crate::services::Offered;
use crate::store::NewAuditEntry;

use super::Asker;
use super::start::{Admitted, Start};

/// Serves one start of a session to its end.
pub(super) async fn serve(asker: &Asker<'_>, presentation: wire::Presentation, mut stream: Stream) {
    let start = match asker.presented(presentation).await {
        Ok(start) => start,
        Err(refusal) => return refuse(asker, "connect", &mut stream, refusal).await,
    };
    let admitted = asker.admit(&start, |store, start, now| store.start(start, now)).await;
    match admitted {
        Ok(admitted) => {
            run_to_end(asker, "connect", start, admitted, stream, Answer::Started).await
        }
        Err(refusal) => refuse(asker, "connect", &mut stream, refusal).await,
    }
}

impl Asker<'_> {
    /// The start that a presentation asks for, if its proof holds.
    async fn presented(&self, presentation: wire::Presentation) -> Result<Start, Refusal> {
        let named = presentation.service.clone();
        let (mut verified, record) = self.verify(presentation, Right::Connect).await?;
        if !named.is_empty() && named != record.service {
            return Err(Refusal::new(Reason::Foreign, "the session is not one of that service"));
        }
        verified.params = verified.params.without(Params::NONCE);
        let (framing, requester) = (record.framing, record.requester);
        Ok(Start { verified, service: record.service, framing, requester })
    }
}

/// Tells the client of the start and runs the service until its end. `answer` makes the answer of `Started`.
pub(super) async fn run_to_end(
    asker: &Asker<'_>,
    operation: &'static str,
    start: Start,
    admitted: Admitted<'_>,
    mut stream: Stream,
    answer: impl FnOnce(wire::Started) -> wire::answer::Answer,
) {
    let Admitted { offered, mut ticket } = admitted;
    let node = asker.node;
    asker.place.prove(asker.connection);
    let _busy = asker.place.busy();
    // Before the client learns of the start: it may open further streams at once.
    let (entered, streams) = asker.place.runs.enter(asker.connection, node.limits.streams);
    let session = start.verified.session.as_bytes().to_vec();
    asker.count_outcome(operation, None);
    let mut message = wire::Answer::from(answer(wire::Started { session, run: entered.number() }));
    let bytes = Zeroizing::new(wire::encode(&message));
    super::zeroize_secret(&mut message);
    if stream.send(&bytes).await.is_err() {
        return;
    }
    let outcome = run(asker, offered, &start.verified, (stream, streams), &mut ticket).await;
    drop((entered, ticket));
    record_end(asker, &start, outcome).await;
}

/// Runs the service until it ends, the session is ended from outside, or the connection is gone.
/// Dropping the service's future ends everything it started, further streams included.
async fn run(
    asker: &Asker<'_>,
    offered: &Offered,
    verified: &Verified,
    (stream, streams): (Stream, Streams),
    ticket: &mut Ticket<'_>,
) -> &'static str {
    let aborter = stream.aborter();
    let invocation = Invocation {
        session: verified.session,
        holder: verified.holder,
        params: verified.params.clone(),
        streams,
    };
    let service = offered.service.run(invocation, stream);
    // The peer is told why before the service, and the stream with it, is dropped.
    let from_outside = async {
        let reason = tokio::select! {
            ended = &mut ticket.ended => ended.unwrap_or(Reason::Failed),
            () = time_over(verified.max_run) => Reason::Expired,
        };
        end_from_outside(&aborter, reason)
    };
    tokio::select! {
        // A node that stops ends sessions and connections at almost the same moment: the cause counts.
        biased;
        outcome = from_outside => outcome,
        result = service => ended(asker, result),
        _ = asker.connection.closed() => "the client went away",
    }
}

/// Waits until a start has run for as long as it may, in seconds.
async fn time_over(max_run: Option<u64>) {
    match max_run {
        Some(seconds) => sleep(Duration::from_secs(seconds)).await,
        None => std::future::pending().await,
    }
}

fn ended(asker: &Asker<'_>, result: Result<(), ServiceError>) -> &'static str {
    match result {
        Ok(()) => "ended",
        Err(ServiceError::Gone | ServiceError::Stream(_)) => "the client went away",
        Err(error) => {
            let (service, session) = asker.concerned();
            tracing::warn!(peer = %asker.peer, service, session, %error, "a session failed");
            "failed"
        }
    }
}

fn end_from_outside(aborter: &StreamAborter, reason: Reason) -> &'static str {
    aborter.reset(reason as u64);
    match reason {
        Reason::Revoked => "revoked",
        Reason::Terminated => "terminated",
        Reason::Expired => "its running time was over",
        _ => "ended by the node",
    }
}

/// The end goes to the audit log as the start did.
async fn record_end(asker: &Asker<'_>, start: &Start, outcome: &'static str) {
    let Ok(now) = asker.now().await else { return };
    let (identity, session) = (asker.peer, start.verified.session);
    let (service, link) = (start.service.clone(), start.verified.ids.last().copied());
    let recorded = asker.node.with_store(move |store| {
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
        tracing::error!(%error, "the audit log was not written");
    }
}

pub(super) async fn refuse(
    asker: &Asker<'_>,
    operation: &'static str,
    stream: &mut Stream,
    refusal: Refusal,
) {
    let verdict = Err(refusal);
    asker.count(operation, &verdict);
    let message = verdict.map_or_else(wire::Answer::from, wire::Answer::from);
    super::answer(stream, message).await;
}
