//! The one operation of a session with middleboxes: it requests and starts a session, in context 0.

use std::sync::Arc;
use std::time::Instant;

use levada_contexts::{Path, PathEvent, PathSession, Received};
use levada_core::wire::{self, Answer, Reason, Refusal, operation::Operation};
use levada_service::{Over, PreparedPathRun, Service};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::answer::zeroize_secret;
use super::connect::{record_end, run_until_end};
use super::context::{LogSubject, RequestContext};
use super::grant::Grant;
use super::refusal::denied;
use super::start::{Admitted, Start};
use crate::carrier::Carrier;
use crate::connections::ConnectionSlot;
use crate::granted::GrantedPath;
use crate::node::Node;
use crate::peers::OPERATION_TIMEOUT;

/// The operation's name in metrics and logs.
const NAME: &str = "start_through_middleboxes";

/// Serves a session with middleboxes to its end.
pub(crate) async fn serve_path(
    node: Arc<Node>,
    (connection, slot): (Arc<dyn Carrier>, ConnectionSlot),
    session: &PathSession,
) {
    let peer = session.peer();
    let subject = LogSubject::default();
    let context = Arc::new(RequestContext { node, connection, peer, slot, subject });
    let started = match session.path() {
        Some(path) => context.start_over(session, &path).await,
        None => return,
    };
    match started {
        Ok((grant, admitted)) => run(&context, session, &grant, admitted).await,
        Err(refusal) => {
            context.record_outcome(NAME, Some(&refusal));
            refuse(session, refusal).await;
        }
    }
}

impl RequestContext {
    async fn start_over(
        self: &Arc<Self>,
        session: &PathSession,
        path: &Path,
    ) -> Result<(Grant, Admitted<PreparedPathRun>), Refusal> {
        self.wait_for_rate().await?;
        let request = match timeout(OPERATION_TIMEOUT, receive(session)).await {
            Ok(Some(Operation::Start(request))) => request,
            _ => return Err(Refusal::new(Reason::Malformed, "no operation that starts a session")),
        };
        let _ = self.subject.received.set(Instant::now());
        if let Some(text) = self.node.denial_reason(&self.peer) {
            return Err(denied(text));
        }
        self.grant_and_start(request, |service: &dyn Service, params| {
            let run = service.prepare(params, Over::Path(path))?.into_path()?;
            let granted = GrantedPath::new(path, session.resumed(), run.context_names());
            Ok((run, Some(granted)))
        })
        .await
    }
}

/// The operation. None if there is none, or another message.
async fn receive(session: &PathSession) -> Option<Operation> {
    let PathEvent::Received(Received::Control(message)) = session.next().await.ok()?? else {
        return None;
    };
    let message = Zeroizing::new(message);
    wire::decode::<wire::Operation>(&message).ok()?.operation
}

async fn run(
    context: &Arc<RequestContext>,
    session: &PathSession,
    grant: &Grant,
    admitted: Admitted<PreparedPathRun>,
) {
    let Admitted { start: Start { verified, service, run, .. }, mut guard } = admitted;
    context.slot.mark_proved(&*context.connection);
    let _count = context.slot.count_session(false);
    let counted = context.node.metrics.services.start(&service);
    context.record_outcome(NAME, None);
    let started = wire::Started { session: verified.session.as_bytes().to_vec(), run: 0 };
    let mut message = wire::Answer::from(grant.started_at_once(started));
    let bytes = Zeroizing::new(wire::encode(&message));
    zeroize_secret(&mut message);
    let realm = run.realm(&service);
    // Middleboxes may answer from here on.
    if session.start(true, realm).is_err() || session.control(&bytes).is_err() {
        return;
    }
    let running = run.start(session.clone());
    let end = |reason: Reason| {
        let _ = session.abort(format!("the node ended the session ({reason:?})").as_bytes());
        let _ = session.close();
    };
    let outcome = run_until_end(context, running, verified.max_run, end, &mut guard).await;
    drop((guard, counted));
    record_end(context, verified.session, service, verified.ids.last().copied(), outcome).await;
}

/// Tells the client why; middleboxes learn only that nothing was started.
async fn refuse(session: &PathSession, refusal: Refusal) {
    let bytes = wire::encode(&Answer::from(refusal));
    if session.start(false, None).is_ok() && session.control(&bytes).is_ok() {
        let _ = session.close();
        session.flushed().await;
    }
}
