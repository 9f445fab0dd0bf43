//! Starting a session: the right is checked, the use is counted and on disk, and only then the
//! service runs; whoever revokes or terminates the session ends it here.

use levada_capability::{Operation as Right, Verified};
use levada_core::Params;
use levada_core::wire::{self, Answer, Reason, Refusal};
use levada_services::{Invocation, ServiceError, Streams};
use levada_session::{Stream, StreamAborter};

use crate::live::Ticket;
use crate::running::Offered;
use crate::store::{NewAuditEntry, SessionRecord, StartError};

use super::operations::{revoked, unknown_service};
use super::{Asker, Verdict, failed};

/// Serves one start of a session to its end.
pub(super) async fn serve(asker: &Asker<'_>, presentation: wire::Presentation, mut stream: Stream) {
    let named = presentation.service.clone();
    let (mut verified, record) = match asker.verify(presentation, Right::Connect).await {
        Ok(found) => found,
        Err(refusal) => return refuse(asker, &mut stream, refusal).await,
    };
    if !named.is_empty() && named != record.service {
        let refusal = Refusal::new(Reason::Foreign, "the session is not one of that service");
        return refuse(asker, &mut stream, refusal).await;
    }
    verified.params = verified.params.without(Params::NONCE);
    let node = asker.node;
    let mut ticket =
        node.live.enter(verified.session, verified.ids.clone(), verified.identities.clone());
    let offered = match start(asker, &verified, &record).await {
        Ok(offered) => offered,
        Err(refusal) => {
            drop(ticket);
            return refuse(asker, &mut stream, refusal).await;
        }
    };
    let _busy = asker.place.busy();
    // Before the client learns of the start: it may open further streams at once.
    let (entered, streams) = asker.place.runs.enter(asker.connection, node.limits.streams);
    let session = verified.session.as_bytes().to_vec();
    let started = wire::Started { session, run: entered.number() };
    let message = wire::answer::Answer::Started(started);
    asker.count("connect", &Verdict::Ok(message.clone()));
    if stream.send(&wire::encode(&Answer::from(message))).await.is_err() {
        return;
    }
    let outcome = run(asker, offered, &verified, (stream, streams), &mut ticket).await;
    drop((entered, ticket));
    record_end(asker, &verified, &record, outcome).await;
}

/// Everything that must hold before the service runs; the last of it is the transaction that counts.
async fn start<'a>(
    asker: &Asker<'a>,
    verified: &Verified,
    record: &SessionRecord,
) -> Result<&'a Offered, Refusal> {
    let node = asker.node;
    if node.live.count() > node.limits.sessions {
        return Err(Refusal::new(Reason::Busy, "the node runs as many sessions as it may"));
    }
    let offered =
        node.services.get(&record.service).ok_or_else(|| unknown_service(&record.service))?;
    if asker.connection.framing() != record.framing {
        let text = format!("this session needs a connection with framing {}", record.framing);
        return Err(Refusal::new(Reason::Framing, text));
    }
    offered
        .service
        .check(&verified.params, true)
        .map_err(|refused| Refusal::new(Reason::Parameters, refused.to_string()))?;
    let (session, uses, by) = (verified.session, verified.uses.clone(), asker.peer);
    let now = asker.now().await?;
    let started = node.with_store(move |store| store.start(&session, &uses, &by, now)).await;
    match started {
        Ok(()) => Ok(offered),
        Err(StartError::UnknownSession) => Err(super::operations::unknown_session()),
        Err(StartError::Terminated) => {
            Err(Refusal::new(Reason::Terminated, "the session was terminated"))
        }
        Err(StartError::Revoked(_)) => Err(revoked()),
        Err(StartError::UsedUp(_)) => {
            Err(Refusal::new(Reason::UsedUp, "the capability is used up"))
        }
        Err(StartError::Expired) => {
            Err(Refusal::new(Reason::Expired, "the capability has expired"))
        }
        Err(StartError::Store(error)) => Err(failed(&error)),
    }
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
        let reason = (&mut ticket.ended).await.unwrap_or(Reason::Failed);
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

fn ended(asker: &Asker<'_>, result: Result<(), ServiceError>) -> &'static str {
    match result {
        Ok(()) => "ended",
        Err(ServiceError::Gone | ServiceError::Stream(_)) => "the client went away",
        Err(error) => {
            tracing::warn!(peer = %asker.peer, %error, "a session failed");
            "failed"
        }
    }
}

fn end_from_outside(aborter: &StreamAborter, reason: Reason) -> &'static str {
    aborter.reset(reason as u64);
    match reason {
        Reason::Revoked => "revoked",
        Reason::Terminated => "terminated",
        _ => "ended by the node",
    }
}

/// The end goes to the audit log as the start did.
async fn record_end(
    asker: &Asker<'_>,
    verified: &Verified,
    record: &SessionRecord,
    outcome: &'static str,
) {
    let Ok(now) = asker.now().await else { return };
    let (identity, session, service) = (asker.peer, verified.session, record.service.clone());
    let link = verified.ids.last().copied();
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

async fn refuse(asker: &Asker<'_>, stream: &mut Stream, refusal: Refusal) {
    let verdict = Err(refusal);
    asker.count("connect", &verdict);
    let message = verdict.map_or_else(Answer::from, Answer::from);
    super::answer(stream, message).await;
}
