//! Serves one operation for each stream: reads it, checks the rights of the peer, performs it and
//! answers. The handshake has authenticated the peer; rights are checked for each operation.

mod admission;
mod answer;
mod connect;
mod context;
mod exchange;
mod grant;
mod groups;
mod operations;
mod path;
mod permit;
mod question;
mod refusal;
mod requested;
mod start;
mod verify;

use std::sync::Arc;
use std::time::Instant;

use levada_core::wire::{Answer, Reason, Refusal, operation::Operation};
use levada_session::Stream;

use crate::carrier::Carrier;
use crate::connections::ConnectionSlot;
use crate::node::Node;

use answer::send_answer;
use context::{LogSubject, RequestContext};
use refusal::denied;

pub(crate) use admission::Admissions;
pub(crate) use path::serve_path;

/// Serves one stream to its end.
pub(crate) async fn serve_stream(
    node: Arc<Node>,
    (connection, slot): (Arc<dyn Carrier>, ConnectionSlot),
    mut stream: Stream,
) {
    let peer = connection.peer();
    let subject = LogSubject::default();
    let context = Arc::new(RequestContext { node, connection, peer, slot, subject });
    // Bounds the memory of operations whose rights are not checked yet.
    let Ok(pending) = context.slot.pending_operations.acquire().await else { return };
    // The rate is taken before the operation is read, so that a stream that is opened and reset
    // counts, too.
    if let Err(refusal) = context.wait_for_rate().await {
        context.record_outcome("unread", Some(&refusal));
        return send_answer(&mut stream, refusal.into()).await;
    }
    let Some(operation) = context.receive(&mut stream).await else { return };
    let _ = context.subject.received.set(Instant::now());
    let name = operation.as_ref().map_or("unknown", |operation| operation.name());
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
        context.node.metrics.operations.count(name, attached.is_ok());
        let name = context.peer_name();
        tracing::debug!(name = name.as_deref(), peer = %context.peer, ?attached, "a further stream");
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
        Operation::ReadGroups(read) => context.read_groups(read).await,
    };
    context.record_outcome(name, result.as_ref().err());
    let message = result.map_or_else(Answer::from, Answer::from);
    send_answer(&mut stream, message).await;
}
