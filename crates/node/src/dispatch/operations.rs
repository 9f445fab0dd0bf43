//! Query, join, terminate, revoke, and rotated keys.

use std::time::Instant;

use levada_capability::{Context, Invitation, Operation as Right, Presented, Verified, verify};
use levada_core::printable::one_line;
use levada_core::wire::{self, Reason, Refusal, answer::Answer};
use levada_core::{Identity, MAX_NAME, Succession, label};
use zeroize::Zeroizing;

use crate::services;
use crate::store::{
    Barred, EndError, RedeemError, Redeemed, SessionRecord, SessionSummary, SucceedError, Succeeded,
};

use super::start::barred;
use super::{Asker, Verdict, denied, failed};

/// Most sessions in one answer; with names of 63 bytes it stays far below the longest message.
const MAX_REQUESTED: u32 = 1000;

impl Asker<'_> {
    /// What is offered is no secret; what may be used is decided at the request.
    pub(super) fn query(&self, query: &wire::Query) -> Verdict {
        let all = query.service.is_empty();
        if !all {
            let _ = self.concerned.service.set(one_line(&query.service, MAX_NAME));
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

    pub(super) async fn join(&self, join: wire::Join) -> Verdict {
        let now = Instant::now();
        if let Some(left) = self.node.attempts.shut_out(self.place.source, now) {
            let minutes = left.as_secs().div_ceil(60);
            let text = format!("too many wrong invitations; try again in {minutes} minutes");
            return Err(Refusal::new(Reason::ShutOut, text));
        }
        // Counted before it is judged, so that guesses sent at once do not slip through together.
        let wait = self.node.attempts.count(self.place.source, now);
        let secret = Zeroizing::new(join.secret);
        let secret: Zeroizing<[u8; 16]> = Zeroizing::new(
            secret.as_slice().try_into().map_err(|_| denied("this is no invitation"))?,
        );
        let (hash, peer) = (Invitation::hash(&secret), self.peer);
        let time = self.now().await?;
        let node = self.node.clone();
        let redeemed = self.node.with_store(move |store| {
            let redeemed = store.redeem(&hash, &peer, time);
            if let Ok(Redeemed { name: Some(name), .. }) = &redeemed {
                node.name_guest(name, &peer, time);
            }
            redeemed
        });
        let redeemed = redeemed.await;
        match redeemed {
            Ok(redeemed) => {
                self.node.attempts.right(self.place.source);
                self.place.prove(self.connection);
                let open = |name: &&String| !self.node.must_be_named(name);
                let all = || self.node.services.keys().filter(open).cloned().collect();
                let services = redeemed.service.map_or_else(all, |service| vec![service]);
                Ok(Answer::Joined(wire::Joined { name: self.node.name.clone(), services }))
            }
            Err(RedeemError::Unknown) => {
                tokio::time::sleep(wait).await;
                Err(denied("this invitation is unknown here"))
            }
            Err(known) => {
                // Whoever names a secret that was once right has not guessed.
                self.node.attempts.forgive(self.place.source);
                Err(match known {
                    RedeemError::Expired => {
                        Refusal::new(Reason::Expired, "this invitation has expired")
                    }
                    RedeemError::Store(error) => failed(&error),
                    _ => denied("this invitation was used already"),
                })
            }
        }
    }

    pub(super) async fn terminate(&self, presentation: wire::Presentation) -> Verdict {
        let (verified, _) = self.verify(presentation, Right::Terminate).await?;
        let (session, by, now) = (verified.session, self.peer, self.now().await?);
        let ids = verified.ids.clone();
        let ended = self.node.with_store(move |store| {
            // Checked here and not before: a revoked right ends nothing.
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
        self.node.live.end_session(&session, Reason::Terminated);
        Ok(Answer::Done(wire::Done {}))
    }

    pub(super) async fn revoke(&self, presentation: wire::Presentation) -> Verdict {
        let (verified, _) = self.verify(presentation, Right::Revoke).await?;
        let (session, by, now) = (verified.session, self.peer, self.now().await?);
        let Some(link) = verified.ids.last().copied() else { return Err(unknown_session()) };
        let ids = verified.ids;
        let done = self.node.with_store(move |store| {
            // What is dead already needs no row of its own.
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
        self.node.live.end_link(&link, Reason::Revoked);
        Ok(Answer::Done(wire::Done {}))
    }

    /// The peer's key follows an older one: what the older one was allowed is the new one's, and what
    /// names the older one ends.
    pub(super) async fn succession(&self, message: &wire::Succession) -> Verdict {
        let succession = Succession::from_wire(message)
            .map_err(|error| Refusal::new(Reason::Forged, error.to_string()))?;
        let (old, new) = (succession.old(), succession.new_identity());
        self.check_succession(&old, &new).await?;
        let (now, node) = (self.now().await?, self.node.clone());
        let done = self.node.with_store(move |store| {
            store.succeed(&succession, now).inspect(|_| node.rename_key(&succession))
        });
        let succeeded = match done.await {
            Ok(succeeded) => succeeded,
            Err(SucceedError::Store(error)) => return Err(failed(&error)),
            Err(refused) => return Err(denied(&refused.to_string())),
        };
        if succeeded == Succeeded::default() {
            return Ok(Answer::Done(wire::Done {}));
        }
        // Tickets of the old key are void, and so is whatever it still runs.
        self.node.tls.forget_sessions();
        self.node.live.set_requester(&succeeded.kept, &new);
        self.node.disconnect(&old, &format!("this key was rotated to {new}"));
        for (session, _) in &succeeded.revoked {
            self.node.live.end_session(session, Reason::Revoked);
        }
        if self.node.policy.blocks(&old) {
            // It was blocked while this was written: a new key is no way around that.
            let blocked = self.node.with_store(move |store| store.block(&new, now)).await;
            blocked.map_err(|error| failed(&error))?;
            self.node.disconnect(&new, "this identity is blocked");
        }
        Ok(Answer::Done(wire::Done {}))
    }

    /// Who may take the place of whom. The old key signs alone, so it must not name a key of another: that one would
    /// get its blocks, its name and the sessions that it has requested. The new key is the peer's, or, as an earlier step
    /// to the peer's, one that was never seen here.
    async fn check_succession(&self, old: &Identity, new: &Identity) -> Result<(), Refusal> {
        let (node, old, new) = (self.node, *old, *new);
        if old == node.identity() {
            return Err(denied("only this node replaces its own key"));
        }
        if node.policy.blocks(&old) {
            return Err(denied("this identity is blocked, and so is what follows it"));
        }
        let known = node.with_store(move |store| {
            Ok::<_, crate::store::StoreError>((
                store.knows(&old)?,
                store.knows(&new)?,
                store.dead(&[old])?,
            ))
        });
        let (old_known, new_known, recorded) = known.await.map_err(|error| failed(&error))?;
        // A key that was never seen here has nothing to lose, and a row of it would be a peer's to make.
        if !old_known && !node.policy.names(&old) {
            return Err(Refusal::new(Reason::Unknown, "this node does not know the old key"));
        }
        let is_others = new_known || node.policy.names(&new) || new == node.identity();
        if self.peer != new && recorded.is_none() && is_others {
            return Err(denied("the new key is not the one that presents the statement"));
        }
        if recorded.is_none() && node.successions.take(self.place.source).is_err() {
            return Err(Refusal::new(Reason::ShutOut, "too many new keys from one source"));
        }
        Ok(())
    }

    /// The sessions that the peer requested for other identities: what a rotation of its key ends.
    pub(super) async fn requested(&self) -> Verdict {
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

    pub(super) fn successor(&self, question: &wire::Successor) -> Verdict {
        let old = Identity::try_from(question.old.as_slice())
            .map_err(|error| Refusal::new(Reason::Malformed, error.to_string()))?;
        let successions = self.node.known.successions().map_err(|error| failed(&error))?;
        let found = successions.into_iter().find(|succession| succession.old() == old);
        let succession = found.ok_or_else(|| denied("this node never had that key"))?;
        Ok(Answer::Succession(succession.to_wire()))
    }

    /// Judges a presented capability against the root of its session, this connection and this peer,
    /// and the keys that are dead.
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
            let barred = store.barred(&keys)?;
            Ok::<_, crate::store::StoreError>((record, barred))
        });
        let (record, barred_key) = found.await.map_err(|error| failed(&error))?;
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
        let _ = self.concerned.session.set(session);
        let _ = self.concerned.service.set(record.service.clone());
        let mut keys = chain.into_iter().chain([record.requester]);
        let blocked = keys.find(|key| self.node.policy.blocks(key)).map(Barred::Blocked);
        // What a blocked identity has requested or passed on ends with it; revoking it is no use of it.
        if operation != Right::Revoke
            && let Some(found @ Barred::Blocked(_)) = blocked.or(barred_key)
        {
            return Err(barred(found, &record.requester));
        }
        let verified = match verify(&presented, &record.root, &context) {
            Err(expired @ levada_capability::VerifyError::Expired(_)) => {
                // Once said, it stays so, whatever the clock does.
                let now = context.now;
                let held = self.node.with_store(move |store| store.hold_time(now)).await;
                held.map_err(|error| failed(&error))?;
                return Err(refuse(expired));
            }
            other => other.map_err(refuse)?,
        };
        match barred_key {
            Some(dead @ Barred::Dead(_)) => Err(barred(dead, &record.requester)),
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
    denied("the capability is foreign: this node has no such session")
}

pub(super) fn unknown_service(name: &str) -> Refusal {
    Refusal::new(Reason::Unknown, format!("this node offers no service `{name}`"))
}
