//! The operations query, join, terminate, revoke, and those about rotated keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_capability::{Invitation, Operation as Right};
use levada_core::printable::one_line;
use levada_core::wire::{self, Reason, Refusal, answer::Answer};
use levada_core::{Digest, Identity, MAX_NAME, Params, Succession};
use levada_home::known::Known;
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::access::FollowError;
use crate::policy::Configured;
use crate::services::{self, Offered};
use crate::store::{
    AppliedSuccession, EndError, RedeemError, Redeemed, SessionSummary, Store, SuccessionError,
};

use super::context::{OperationResult, RequestContext};
use super::refusal::{denied, failed, revoked, unknown_secret, unknown_service, unknown_session};

/// The maximum number of sessions in one answer. With names of 63 bytes it stays far below the
/// maximum message length.
const MAX_REQUESTED: u32 = 1000;
/// The maximum number of values that the description of a service names.
const MAX_VALUES: usize = 64;

impl RequestContext {
    /// Describes services. Descriptions are public, except for the values that a service names, such
    /// as the programs of `exec`; rights are checked when a service is requested.
    pub(super) fn query(&self, query: &wire::Query) -> OperationResult {
        let all = query.service.is_empty();
        if !all {
            let _ = self.subject.service.set(one_line(&query.service, MAX_NAME));
        }
        let services: Vec<_> = self
            .node
            .services
            .values()
            .filter(|offered| all || offered.description.name == query.service)
            .map(|offered| self.describe(offered))
            .collect();
        if services.is_empty() && !all {
            return Err(unknown_service(&query.service, &self.node.open_to(&self.peer)));
        }
        Ok(Answer::Services(wire::Services { services }))
    }

    fn describe(&self, offered: &Offered) -> wire::Service {
        let mut description = services::describe(&offered.description);
        let mut parameters = description.parameters.iter_mut();
        if let Some(args) = parameters.find(|parameter| parameter.key == Params::ARGS)
            && self.node.may_request(&self.peer, &description.name)
        {
            args.values = offered.service.named_values();
            args.values.truncate(MAX_VALUES);
        }
        description
    }

    /// Redeems an invitation.
    pub(super) async fn join(self: &Arc<Self>, join: wire::Join) -> OperationResult {
        let secret = secret_of("an invitation", join.secret)?;
        let hash = Invitation::hash(&secret);
        self.check_secret("invitation", &hash).await?;
        let redeemed = self.on_store(move |context, store| {
            let peer = context.peer;
            let now = context.node.now();
            let redeemed = store.redeem(&hash, &peer, now);
            if let Ok(Redeemed { name: Some(name), .. }) = &redeemed {
                context.node.pin_guest(name, &peer, now);
            }
            redeemed
        });
        match redeemed.await {
            Ok(redeemed) => {
                self.slot.mark_proved(&*self.connection);
                let included = |name: &&String| !self.node.must_be_named(name);
                let all = || self.node.services.keys().filter(included).cloned().collect();
                let services = redeemed.service.map_or_else(all, |service| vec![service]);
                Ok(Answer::Joined(wire::Joined { name: self.node.name.clone(), services }))
            }
            Err(RedeemError::Expired) => {
                Err(Refusal::new(Reason::Expired, "this invitation has expired"))
            }
            Err(RedeemError::Used) => Err(denied("this invitation has been used or cancelled")),
            Err(RedeemError::Unknown) => Err(unknown_secret("invitation")),
            Err(RedeemError::Store(error)) => Err(failed(&error)),
        }
    }

    /// Refuses a secret that this node has not given out, and counts it as a guess of the source.
    /// `kind` is what the secret should belong to. The answer is the same whether or not this node
    /// has any of that kind.
    pub(super) async fn check_secret(&self, kind: &str, hash: &Digest) -> Result<(), Refusal> {
        let attempts = &self.node.peers.attempts;
        let source = self.slot.source;
        let now = Instant::now();
        let is_known = self.node.rights.store.knows_secret(hash);
        let checked = match is_known {
            true => attempts.lockout(source, now).map_or(Ok(Duration::ZERO), Err),
            false => attempts.record(source, now),
        };
        let delay = checked.map_err(|left| {
            let minutes = left.as_secs().div_ceil(60);
            let text = format!("too many wrong {kind}s; try again in {minutes} minutes");
            Refusal::new(Reason::ShutOut, text)
        })?;
        sleep(delay).await;
        if is_known { Ok(()) } else { Err(unknown_secret(kind)) }
    }

    pub(super) async fn terminate(
        self: &Arc<Self>,
        presentation: wire::Presentation,
    ) -> OperationResult {
        let presented = self.decode(presentation)?;
        let ended = self.on_store(move |context, store| {
            let (verified, _) = context.verify(store, &presented, Right::Terminate)?;
            // A revoked capability must not terminate the session.
            if store.revoked(&verified.ids).map_err(|error| failed(&error))?.is_some() {
                return Err(revoked());
            }
            let session = verified.session;
            let ended = store.terminate(&session, &context.peer, context.node.now());
            ended.map_err(not_ended)?;
            context.node.peers.sessions.end_session(&session, Reason::Terminated);
            Ok(Answer::Done(wire::Done {}))
        });
        ended.await
    }

    pub(super) async fn revoke(
        self: &Arc<Self>,
        presentation: wire::Presentation,
    ) -> OperationResult {
        let presented = self.decode(presentation)?;
        let done = self.on_store(move |context, store| {
            let (verified, _) = context.verify(store, &presented, Right::Revoke)?;
            let Some(link) = verified.ids.last() else { return Err(unknown_session()) };
            // A capability that is revoked already needs no further row.
            if store.revoked(&verified.ids).map_err(|error| failed(&error))?.is_none() {
                let now = context.node.now();
                let revoked = store.revoke(link, &verified.session, &context.peer, now);
                revoked.map_err(not_ended)?;
            }
            context.node.peers.sessions.end_link(link, Reason::Revoked);
            Ok(Answer::Done(wire::Done {}))
        });
        done.await
    }

    /// Applies a key rotation: the new key receives the rights of the old one, and sessions and
    /// capabilities of the old key end.
    pub(super) async fn succession(
        self: &Arc<Self>,
        message: &wire::Succession,
    ) -> OperationResult {
        let succession = Succession::from_wire(message)
            .map_err(|error| Refusal::new(Reason::Forged, error.to_string()))?;
        self.on_store(move |context, store| context.apply_succession(store, &succession)).await
    }

    fn apply_succession(&self, store: &Store, succession: &Succession) -> OperationResult {
        let old = succession.old();
        let new = succession.new_identity();
        self.check_succession(store, &old, &new)?;
        let node = &self.node;
        let now = self.node.now();
        let is_repeated = store.rotated(&old);
        let applied = match node.apply_succession(store, succession) {
            Ok(applied) => applied,
            Err(FollowError::Policy(error)) => return Err(failed(&error)),
            Err(FollowError::Succession(SuccessionError::Store(error))) => {
                return Err(failed(&error));
            }
            Err(FollowError::Succession(refused)) => return Err(denied(&refused.to_string())),
        };
        node.move_pin(succession);
        if is_repeated && applied == AppliedSuccession::default() {
            return Ok(Answer::Done(wire::Done {}));
        }
        // Groups and the lists name the new key from here on.
        if let Err(error) = node.replace_inputs(store, Configured::clone) {
            tracing::error!(%error, "could not read the groups after the rotation of a key");
        }
        // TLS tickets of the old key become invalid, and its runs end.
        node.forget_sessions();
        node.peers.sessions.set_requester(&applied.kept, &new);
        node.disconnect(&old, &format!("this key was rotated to {new}"));
        for (session, _) in &applied.revoked {
            node.peers.sessions.end_session(session, Reason::Revoked);
        }
        if node.rights.policy.blocks(&old) {
            // The old key was blocked while the succession was written: the block applies to the
            // new key, too.
            store.block(&new, now).map_err(|error| failed(&error))?;
            node.disconnect(&new, "this identity is blocked");
        }
        Ok(Answer::Done(wire::Done {}))
    }

    /// Checks whether `new` may succeed `old`. Only the old key signs the statement, so it must not
    /// name a key of another identity, which would receive its blocks, its name and its sessions.
    /// The new key must be the peer's own, or, for an earlier step of several rotations, one that
    /// this node has never seen.
    fn check_succession(
        &self,
        store: &Store,
        old: &Identity,
        new: &Identity,
    ) -> Result<(), Refusal> {
        let node = &self.node;
        if *old == node.identity() {
            return Err(denied("the node's own key is rotated only on its machine"));
        }
        if node.rights.policy.blocks(old) {
            return Err(denied("this identity is blocked, and so is its new key"));
        }
        if store.rotated(old) {
            // The checks below were made when the first statement was stored; the store compares
            // this one with it.
            return Ok(());
        }
        let is_known = |identity| store.is_known(identity).map_err(|error| failed(&error));
        // An unknown key has no rights to pass on, and storing it would let any peer fill the disk.
        if !is_known(old)? && !node.rights.policy.names(old) {
            return Err(Refusal::new(Reason::Unknown, "the old key is unknown to this node"));
        }
        let is_in_use = is_known(new)? || node.rights.policy.names(new) || *new == node.identity();
        if self.peer != *new && is_in_use {
            return Err(denied(
                "the new key is in use, and is not the one that presents the statement",
            ));
        }
        node.peers.successions.take(self.slot.source).map_err(|_| {
            Refusal::new(Reason::ShutOut, "too many new keys from this address; try again later")
        })
    }

    /// Lists the sessions that the peer requested for other identities, which a rotation of its key
    /// ends.
    pub(super) async fn requested(self: &Arc<Self>) -> OperationResult {
        let found = self.on_store(|context, store| {
            store.requested_for_others(&context.peer, MAX_REQUESTED + 1)
        });
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
}

/// The secret of an invitation or a ticket, as `kind` says.
pub(super) fn secret_of(kind: &str, bytes: Vec<u8>) -> Result<Zeroizing<[u8; 16]>, Refusal> {
    let bytes = Zeroizing::new(bytes);
    let secret = bytes.as_slice().try_into().map(Zeroizing::new);
    secret.map_err(|_| denied(&format!("the secret of {kind} has 16 bytes")))
}

fn not_ended(error: EndError) -> Refusal {
    match error {
        EndError::UnknownSession => unknown_session(),
        EndError::Store(error) => failed(&error),
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
