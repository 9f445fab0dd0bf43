//! The operations query, join, terminate, revoke, and those about rotated keys.

use std::time::Instant;

use levada_capability::{Context, Invitation, Operation as Right, Presented, Verified, verify};
use levada_client::known::Known;
use levada_core::printable::one_line;
use levada_core::wire::{self, Reason, Refusal, answer::Answer};
use levada_core::{Identity, MAX_NAME, Succession, label};
use zeroize::Zeroizing;

use crate::services;
use crate::store::{
    AppliedSuccession, DenialReason, EndError, RedeemError, Redeemed, SessionRecord,
    SessionSummary, StoreError, SuccessionError,
};

use super::start::denied_capability;
use super::{OperationResult, RequestContext, denied, failed};

/// The maximum number of sessions in one answer. With names of 63 bytes it stays far below the maximum message length.
const MAX_REQUESTED: u32 = 1000;

impl RequestContext<'_> {
    /// Describes services. Descriptions are public; rights are checked when a service is requested.
    pub(super) fn query(&self, query: &wire::Query) -> OperationResult {
        let all = query.service.is_empty();
        if !all {
            let _ = self.subject.service.set(one_line(&query.service, MAX_NAME));
        }
        let services: Vec<_> = self
            .node
            .services
            .values()
            .map(|offered| &offered.description)
            .filter(|description| all || description.name == query.service)
            .map(services::describe)
            .collect();
        if services.is_empty() && !all {
            return Err(unknown_service(&query.service));
        }
        Ok(Answer::Services(wire::Services { services }))
    }

    /// Redeems an invitation.
    pub(super) async fn join(&self, join: wire::Join) -> OperationResult {
        let now = Instant::now();
        if let Some(left) = self.node.attempts.lockout(self.slot.source, now) {
            let minutes = left.as_secs().div_ceil(60);
            let text = format!("too many wrong invitations; try again in {minutes} minutes");
            return Err(Refusal::new(Reason::ShutOut, text));
        }
        // Counted before the secret is checked, so that concurrent guesses all count.
        let delay = self.node.attempts.record(self.slot.source, now);
        let secret = Zeroizing::new(join.secret);
        let secret: Zeroizing<[u8; 16]> = Zeroizing::new(
            secret
                .as_slice()
                .try_into()
                .map_err(|_| denied("the secret of an invitation has 16 bytes"))?,
        );
        let (hash, peer) = (Invitation::hash(&secret), self.peer);
        let time = self.now().await?;
        let node = self.node.clone();
        let redeemed = self.node.with_store(move |store| {
            let redeemed = store.redeem(&hash, &peer, time);
            if let Ok(Redeemed { name: Some(name), .. }) = &redeemed {
                node.pin_guest(name, &peer, time);
            }
            redeemed
        });
        let redeemed = redeemed.await;
        match redeemed {
            Ok(redeemed) => {
                self.node.attempts.reset(self.slot.source);
                self.slot.mark_proved(self.connection);
                let included = |name: &&String| !self.node.must_be_named(name);
                let all = || self.node.services.keys().filter(included).cloned().collect();
                let services = redeemed.service.map_or_else(all, |service| vec![service]);
                Ok(Answer::Joined(wire::Joined { name: self.node.name.clone(), services }))
            }
            Err(RedeemError::Unknown) => {
                tokio::time::sleep(delay).await;
                Err(denied("this node has not issued this invitation"))
            }
            Err(known) => {
                // The secret is that of an invitation, so it was not guessed.
                self.node.attempts.uncount(self.slot.source);
                Err(match known {
                    RedeemError::Expired => {
                        Refusal::new(Reason::Expired, "this invitation has expired")
                    }
                    RedeemError::Store(error) => failed(&error),
                    _ => denied("this invitation has been used"),
                })
            }
        }
    }

    pub(super) async fn terminate(&self, presentation: wire::Presentation) -> OperationResult {
        let (verified, _) = self.verify(presentation, Right::Terminate).await?;
        let (session, by, now) = (verified.session, self.peer, self.now().await?);
        let ids = verified.ids.clone();
        let ended = self.node.with_store(move |store| {
            // Checked in the same call as the change: a revoked capability must not terminate the session.
            if store.revoked(&ids)?.is_some() {
                return Ok(None);
            }
            store.terminate(&session, &by, now).map(Some)
        });
        match ended.await {
            Ok(Some(_)) => {}
            Ok(None) => return Err(revoked()),
            Err(EndError::UnknownSession) => return Err(unknown_session()),
            Err(EndError::Store(error)) => return Err(failed(&error)),
        }
        self.node.sessions.end_session(&session, Reason::Terminated);
        Ok(Answer::Done(wire::Done {}))
    }

    pub(super) async fn revoke(&self, presentation: wire::Presentation) -> OperationResult {
        let (verified, _) = self.verify(presentation, Right::Revoke).await?;
        let (session, by, now) = (verified.session, self.peer, self.now().await?);
        let Some(link) = verified.ids.last().copied() else { return Err(unknown_session()) };
        let ids = verified.ids;
        let done = self.node.with_store(move |store| {
            // A capability that is revoked already needs no further row.
            if store.revoked(&ids)?.is_some() {
                return Ok(false);
            }
            store.revoke(&link, &session, &by, now)
        });
        let done = done.await;
        match done {
            Ok(_) => {}
            Err(EndError::UnknownSession) => return Err(unknown_session()),
            Err(EndError::Store(error)) => return Err(failed(&error)),
        }
        self.node.sessions.end_link(&link, Reason::Revoked);
        Ok(Answer::Done(wire::Done {}))
    }

    /// Applies a key rotation: the new key receives the rights of the old one, and sessions and capabilities of the old key
    /// end.
    pub(super) async fn succession(&self, message: &wire::Succession) -> OperationResult {
        let succession = Succession::from_wire(message)
            .map_err(|error| Refusal::new(Reason::Forged, error.to_string()))?;
        let (old, new) = (succession.old(), succession.new_identity());
        self.check_succession(&old, &new).await?;
        let (now, node) = (self.now().await?, self.node.clone());
        let done = self.node.with_store(move |store| {
            store.apply_succession(&succession, now).inspect(|_| node.move_pin(&succession))
        });
        let applied = match done.await {
            Ok(applied) => applied,
            Err(SuccessionError::Store(error)) => return Err(failed(&error)),
            Err(refused) => return Err(denied(&refused.to_string())),
        };
        if applied == AppliedSuccession::default() {
            return Ok(Answer::Done(wire::Done {}));
        }
        // TLS tickets of the old key become invalid, and its runs end.
        self.node.tls.forget_sessions();
        self.node.sessions.set_requester(&applied.kept, &new);
        self.node.disconnect(&old, &format!("this key was rotated to {new}"));
        for (session, _) in &applied.revoked {
            self.node.sessions.end_session(session, Reason::Revoked);
        }
        if self.node.policy.blocks(&old) {
            // The old key was blocked while the succession was written: the block applies to the new key, too.
            let blocked = self.node.with_store(move |store| store.block(&new, now)).await;
            blocked.map_err(|error| failed(&error))?;
            self.node.disconnect(&new, "this identity is blocked");
        }
        Ok(Answer::Done(wire::Done {}))
    }

    /// Checks whether `new` may succeed `old`. Only the old key signs the statement, so it must not name a key of another
    /// identity, which would receive its blocks, its name and its sessions. The new key must be the peer's own, or, for an
    /// earlier step of several rotations, one that this node has never seen.
    async fn check_succession(&self, old: &Identity, new: &Identity) -> Result<(), Refusal> {
        let (node, old, new) = (self.node, *old, *new);
        if old == node.identity() {
            return Err(denied("the node's own key is rotated only on its machine"));
        }
        if node.policy.blocks(&old) {
            return Err(denied("this identity is blocked, and so is its new key"));
        }
        let found = node.with_store(move |store| {
            let is_rotated = store.first_rotated(&[old])?.is_some();
            Ok::<_, StoreError>((is_rotated, store.is_known(&old)?, store.is_known(&new)?))
        });
        let (is_rotated, old_known, new_known) = found.await.map_err(|error| failed(&error))?;
        if is_rotated {
            // The checks below were made when the first statement was stored; the store compares this one with it.
            return Ok(());
        }
        // An unknown key has no rights to pass on, and storing it would let any peer fill the disk.
        if !old_known && !node.policy.names(&old) {
            return Err(Refusal::new(Reason::Unknown, "the old key is unknown to this node"));
        }
        let is_in_use = new_known || node.policy.names(&new) || new == node.identity();
        if self.peer != new && is_in_use {
            return Err(denied(
                "the new key is in use, and is not the one that presents the statement",
            ));
        }
        node.successions.take(self.slot.source).map_err(|_| {
            Refusal::new(Reason::ShutOut, "too many new keys from this address; try again later")
        })
    }

    /// Lists the sessions that the peer requested for other identities, which a rotation of its key ends.
    pub(super) async fn requested(&self) -> OperationResult {
        let requester = self.peer;
        let found = self
            .node
            .with_store(move |store| store.requested_for_others(&requester, MAX_REQUESTED + 1));
        let mut found = found.await.map_err(|error| failed(&error))?;
        let more = found.len() > MAX_REQUESTED as usize;
        found.truncate(MAX_REQUESTED as usize);
        let sessions = found.iter().map(requested_session).collect();
        Ok(Answer::Requested(wire::RequestedSessions { sessions, more }))
    }

    /// Returns the statement of this node's own rotation from the key in question.
    pub(super) async fn successor(&self, question: &wire::Successor) -> OperationResult {
        let old = Identity::try_from(question.old.as_slice())
            .map_err(|error| Refusal::new(Reason::Malformed, error.to_string()))?;
        let successions = self.node.client.with_known(Known::successions).await;
        let successions = successions.map_err(|error| failed(&error))?;
        let found = successions.into_iter().find(|succession| succession.old() == old);
        let succession = found.ok_or_else(|| denied("this key was never the key of this node"))?;
        Ok(Answer::Succession(succession.to_wire()))
    }

    /// Verifies a presented capability against the root of its session, this connection and this peer, and checks that none
    /// of its keys is blocked or was rotated.
    pub(super) async fn verify(
        &self,
        presentation: wire::Presentation,
        operation: Right,
    ) -> Result<(Verified, SessionRecord), Refusal> {
        let refuse = |refused: levada_capability::VerifyError| {
            Refusal::new(refused.reason(), refused.to_string())
        };
        let presented = Presented::decode(presentation).map_err(refuse)?;
        let exporter = self.connection.export::<32>(label::EXPORTER);
        let exporter = Zeroizing::new(exporter.map_err(|error| failed(&error))?);
        let (session, mut keys) = (presented.session(), presented.chain().identities());
        let chain = keys.clone();
        let found = self.node.with_store(move |store| {
            let record = store.session(&session)?;
            keys.extend(record.as_ref().map(|record| record.requester));
            let denial = store.denial_reason(&keys)?;
            Ok::<_, StoreError>((record, denial))
        });
        let (record, denial) = found.await.map_err(|error| failed(&error))?;
        let context = Context {
            node: self.node.identity(),
            peer: self.peer,
            exporter: &exporter,
            operation,
            now: self.now().await?,
        };
        if presented.chain().node() != context.node {
            return Err(refuse(levada_capability::VerifyError::Foreign));
        }
        let record = record.ok_or_else(unknown_session)?;
        let _ = self.subject.session.set(session);
        let _ = self.subject.service.set(record.service.clone());
        let mut keys = chain.into_iter().chain([record.requester]);
        let blocked = keys.find(|key| self.node.policy.blocks(key)).map(DenialReason::Blocked);
        // Capabilities that a blocked identity has requested or passed on cannot be used. Revoking them is still allowed.
        if operation != Right::Revoke
            && let Some(reason @ DenialReason::Blocked(_)) = blocked.or(denial)
        {
            return Err(denied_capability(reason, &record.requester));
        }
        let verified = match verify(&presented, &record.root, &context) {
            Err(expired @ levada_capability::VerifyError::Expired(_)) => {
                // The time is stored, so that the capability stays expired even if the clock is set back.
                let now = context.now;
                let stored = self.node.with_store(move |store| store.store_time(now)).await;
                stored.map_err(|error| failed(&error))?;
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

fn requested_session(session: &SessionSummary) -> wire::RequestedSession {
    wire::RequestedSession {
        session: session.id.as_bytes().to_vec(),
        service: session.service.clone(),
        holder: session.holder.as_bytes().to_vec(),
        created: session.created.0,
        expires: session.expires.0,
        starts: session.starts,
    }
}

pub(super) fn revoked() -> Refusal {
    Refusal::new(Reason::Revoked, "the capability was revoked")
}

pub(super) fn unknown_session() -> Refusal {
    denied("this node has no session of this capability")
}

pub(super) fn unknown_service(name: &str) -> Refusal {
    Refusal::new(Reason::Unknown, format!("this node offers no service `{name}`"))
}
