//! Refusals of several operations.

use levada_core::wire::{Reason, Refusal};

use crate::store::StoreError;

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

pub(super) fn unknown_service(name: &str) -> Refusal {
    Refusal::new(Reason::Unknown, format!("this node offers no service `{name}`"))
}
