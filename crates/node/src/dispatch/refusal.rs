//! Refusals of several operations.

use levada_core::wire::{Reason, Refusal};
use levada_core::{Identity, closest, listed};

use crate::decide::StartDenied;
use crate::node::Node;
use crate::store::StoreError;

/// The maximum number of services that a refusal lists.
const MAX_LISTED: usize = 8;

/// The refusal for an error of the node. The log has the cause; the peer learns only whether the
/// disk is full or read-only.
pub(super) fn failed(error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::error!(%error, "an operation failed");
    let text = match error.downcast_ref::<StoreError>().and_then(StoreError::disk) {
        Some(disk) => format!("the node's disk is {disk}"),
        None => "internal error of the node: see its log".to_owned(),
    };
    Refusal::new(Reason::Failed, text)
}

/// Refuses new sessions while the node drains.
pub(super) fn check_draining(node: &Node) -> Result<(), Refusal> {
    match node.drains_for() {
        None => Ok(()),
        Some(_) => Err(Refusal::new(
            Reason::Busy,
            "the node is about to stop, and takes no new requests and starts; try again later",
        )),
    }
}

pub(super) fn denied(text: &str) -> Refusal {
    Refusal::new(Reason::Denied, text)
}

pub(super) fn revoked() -> Refusal {
    Refusal::new(Reason::Revoked, "the capability was revoked")
}

pub(super) fn unknown_session() -> Refusal {
    denied("this node has no session of this capability")
}

pub(super) fn unknown_secret(kind: &str) -> Refusal {
    denied(&format!("this node has not issued this {kind}"))
}

/// The refusal of a service that the node does not have; `open` are those that the peer may
/// request.
pub(super) fn unknown_service(name: &str, open: &[&str]) -> Refusal {
    let mut text = format!("this node offers no service `{name}`");
    if let Some(meant) = closest(name, open.iter().copied()) {
        text += &format!("; did you mean `{meant}`?");
    }
    if !open.is_empty() {
        text += &format!("; open to this identity: {}", listed(open, MAX_LISTED));
    }
    Refusal::new(Reason::Unknown, text)
}

/// The refusal of a service that the peer may not request.
pub(super) fn not_open(name: &str, open: &[&str]) -> Refusal {
    let open = only(open);
    denied(&format!(
        "this identity may not request `{name}` here{open}; an invitation from the node's owner allows it"
    ))
}

/// The refusal of a request by the rule at `place`. The peer does not learn the place.
pub(super) fn denied_by_rule(place: &str) -> Refusal {
    tracing::debug!(place, "a rule denies a request");
    denied("a rule of the node's owner denies this session")
}

/// The refusal of a request for another identity of a session that an entity must approve.
pub(super) fn ask_for_another(node: &Node, entity: &Identity) -> Refusal {
    denied(&format!(
        "a rule asks {} to approve this session, which its holder must request itself",
        node.shown_name(entity)
    ))
}

/// The refusal of a request of a service that rules give with other parameters.
pub(super) fn no_rule_permits(name: &str) -> Refusal {
    denied(&format!(
        "this identity may not request `{name}` with these parameters, uses and expiry; a \
         parameter that a rule limits must be in the request"
    ))
}

/// The refusal of a request whose rule has changed while its entity decided.
pub(super) fn rules_changed() -> Refusal {
    denied("the rules of the node have changed while the entity decided; request again")
}

/// The refusal of a start that rules deny.
pub(super) fn start_denied(node: &Node, reason: StartDenied, requester: &Identity) -> Refusal {
    match reason {
        StartDenied::Rule(place, identity) => {
            tracing::debug!(%place, peer = %identity, "a rule denies a start");
            let role = if identity == *requester { "requester" } else { "holder" };
            denied(&format!("a rule of the node's owner denies this session to its {role}"))
        }
        StartDenied::NotApproved(entity) => denied(&format!(
            "a rule of the node's owner asks {}, which has not approved this session; request a \
             new one with these parameters",
            node.shown_name(&entity)
        )),
        StartDenied::NoLonger => denied(
            "a rule has given this session, and no rule permits it with these parameters now",
        ),
        StartDenied::RightEnded => right_ended(),
    }
}

/// The refusal of a request that no right permits with its uses and its expiry.
pub(super) fn no_longer_permitted() -> Refusal {
    denied(
        "no right of this identity permits this session: it was removed, ends earlier, or has \
         fewer uses left",
    )
}

/// The refusal of a session whose requester has lost the right to it.
fn right_ended() -> Refusal {
    denied("the right by which this session was requested has ended")
}

/// The services that a peer may request, as the end of a sentence.
fn only(open: &[&str]) -> String {
    if open.is_empty() { String::new() } else { format!(", only {}", listed(open, MAX_LISTED)) }
}
