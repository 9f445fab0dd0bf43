//! Verifies presented capabilities.

use levada_capability::{Context, Operation as Right, Presented, Verified, VerifyError, verify};
use levada_core::wire::{self, Reason, Refusal};
use levada_core::{Identity, label};
use zeroize::Zeroizing;

use crate::store::{DenialReason, SessionRecord, Store};

use super::context::RequestContext;
use super::refusal::{denied, failed, unknown_session};

impl RequestContext {
    /// Decodes a presentation of a capability of this node.
    pub(super) fn decode(&self, presentation: wire::Presentation) -> Result<Presented, Refusal> {
        let presented = Presented::decode(presentation).map_err(refuse)?;
        if presented.chain().node() == self.node.identity() {
            return Ok(presented);
        }
        Err(refuse(VerifyError::Foreign))
    }

    /// Verifies a presented capability against the root of its session, this connection and this
    /// peer, and checks that none of its keys is blocked or was rotated.
    pub(super) fn verify(
        &self,
        store: &Store,
        presented: &Presented,
        operation: Right,
    ) -> Result<(Verified, SessionRecord), Refusal> {
        let exporter = self.connection.export(label::EXPORTER);
        let exporter = Zeroizing::new(exporter.map_err(|error| failed(&error))?);
        let session = presented.session();
        let record = store.session(&session).map_err(|error| failed(&error))?;
        let record = record.ok_or_else(unknown_session)?;
        let _ = self.subject.session.set(session);
        let _ = self.subject.service.set(record.service.clone());
        let mut keys = presented.chain().identities();
        keys.push(record.requester);
        let denial = store.denial_reason(&keys);
        let blocked = keys.iter().copied().find(|key| self.node.rights.policy.blocks(key));
        let blocked = blocked.map(DenialReason::Blocked);
        // Capabilities that a blocked identity has requested or passed on cannot be used. Revoking
        // them is still allowed.
        if operation != Right::Revoke
            && let Some(reason @ DenialReason::Blocked(_)) = blocked.or(denial)
        {
            return Err(denied_capability(reason, &record.requester));
        }
        let context = Context {
            node: self.node.identity(),
            peer: self.peer,
            exporter: &exporter,
            operation,
            now: self.node.now(),
        };
        let verified = match verify(presented, &record.root, &context) {
            Err(expired @ VerifyError::Expired(_)) => {
                // The time is stored, so that the capability stays expired even if the clock is set
                // back.
                store.store_time(context.now).map_err(|error| failed(&error))?;
                return Err(refuse(expired));
            }
            other => other.map_err(refuse)?,
        };
        match denial {
            Some(reason @ DenialReason::Rotated(_)) => {
                Err(denied_capability(reason, &record.requester))
            }
            _ => Ok((verified, record)),
        }
    }
}

fn refuse(refused: VerifyError) -> Refusal {
    Refusal::new(refused.reason(), refused.to_string())
}

/// The refusal of a capability with a key that is blocked or was rotated.
pub(super) fn denied_capability(reason: DenialReason, requester: &Identity) -> Refusal {
    match reason {
        DenialReason::Blocked(identity) if identity == *requester => {
            denied("the session was requested by an identity that is blocked")
        }
        DenialReason::Blocked(_) => {
            denied("the capability was passed on by an identity that is blocked")
        }
        DenialReason::Rotated(key) => {
            let text = format!("the capability was revoked: the key {key} was rotated away");
            Refusal::new(Reason::Revoked, text)
        }
    }
}
