//! Asks an entity whether a session may be given: the rule of a request says `ask`.

use std::time::Duration;

use levada_capability::exchange::{PendingQuestion, Reply, Route, SessionRequest};
use levada_core::wire::{Cause, Ended, Reason, Refusal};
use levada_core::{Identity, Params, SystemRandom};
use levada_service::Entities;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::store::PeerStatus;

use super::context::RequestContext;
use super::grant::Grant;
use super::refusal::{denied, failed};

/// The time limit for the reply of an entity.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// The service at which an entity is registered, and the challenge of its registration.
type Registration<'a> = (&'a dyn Entities, Result<[u8; 32], Ended>);

impl RequestContext {
    /// Asks `entity` to approve the session, and returns once it has. The service at which it is
    /// registered counts the open questions of each requester. The question is withdrawn when the
    /// connection of the client ends.
    pub(super) async fn ask(&self, entity: Identity, grant: &Grant) -> Result<(), Refusal> {
        let _permits = match self.is_named() {
            true => None,
            false => Some(self.permits()?),
        };
        tokio::select! {
            asked = timeout(REPLY_TIMEOUT, self.question(entity, grant)) => asked.unwrap_or_else(|_| {
                let text = self.about_entity(&entity, "has not answered within two minutes");
                Err(Refusal::new(Reason::Busy, text))
            }),
            () = self.connection.closed() => Err(denied("the client went away")),
        }
    }

    /// Returns true if the owner has given this peer a right by its name, also as a member of a
    /// group. All others may be any number of identities of one person.
    fn is_named(&self) -> bool {
        let now = self.node.now();
        let status = self.node.rights.store.listed_status(&self.peer, now);
        self.node.rights.policy.allows_any(&self.peer, now) || status == Some(PeerStatus::HasRight)
    }

    /// The permits that limit the questions of peers without a name, of one source and together:
    /// half of the questions remains for the others.
    fn permits(&self) -> Result<[OwnedSemaphorePermit; 2], Refusal> {
        let busy = |text: &str| Refusal::new(Reason::Busy, text);
        let questions = &self.node.peers.questions;
        let of_source = questions.try_permit(self.slot.source).ok_or_else(|| {
            busy("too many questions from this address wait for a reply; ask again later")
        })?;
        let of_all =
            self.node.peers.unnamed_questions.clone().try_acquire_owned().map_err(|_| {
                busy("too many questions of unknown identities wait for a reply; ask again later")
            })?;
        Ok([of_source, of_all])
    }

    async fn question(&self, entity: Identity, grant: &Grant) -> Result<(), Refusal> {
        let ended = |ended: Ended| self.not_asked(&entity, &ended);
        let (entities, challenge) = self.registration(&entity).ok_or_else(|| {
            let text =
                self.about_entity(&entity, "is not registered at this node; try again later");
            Refusal::new(Reason::Busy, text)
        })?;
        let challenge = challenge.map_err(ended)?;
        let node = self.node.identity();
        let until = self.node.now().after(REPLY_TIMEOUT);
        let route = Route { via: node, entity, challenge, until };
        let wanted = grant.wanted();
        let request = SessionRequest {
            node,
            addresses: Vec::new(),
            service: wanted.service.to_owned(),
            params: wanted.params.clone().without(Params::FRAMING),
            expires: Some(grant.body.expires),
            uses: wanted.uses,
        };
        let key = &self.node.key;
        let made = PendingQuestion::of_node(key, &route, request, self.peer, &SystemRandom);
        let (pending, question) = made.map_err(|error| failed(&error))?;
        let reply = entities.ask(question).await.map_err(ended)?;
        match pending.read(&reply).map_err(|error| failed(&error))? {
            Reply::Permitted => Ok(()),
            Reply::No(refusal) if refusal.text.is_empty() => {
                Err(denied(&self.about_entity(&entity, "has refused")))
            }
            Reply::No(refusal) => {
                let what = format!("has refused: {}", refusal.text);
                Err(denied(&self.about_entity(&entity, &what)))
            }
            Reply::Failed(refusal) => {
                Err(Refusal::new(Reason::Busy, self.about_entity(&entity, &refusal.text)))
            }
            // `read` refuses it.
            Reply::Granted(_) => Err(denied("the entity has answered another question")),
        }
    }

    /// The service at which `entity` is registered, and the challenge of its registration.
    fn registration(&self, entity: &Identity) -> Option<Registration<'_>> {
        let all = self.node.services.values();
        all.filter_map(|offered| offered.service.entities())
            .find_map(|entities| Some((entities, entities.challenge(entity)?)))
    }

    fn not_asked(&self, entity: &Identity, ended: &Ended) -> Refusal {
        let text = match ended.cause() {
            Cause::Busy => ended.text.clone(),
            _ => self.about_entity(entity, &format!("has not answered: {}", ended.text)),
        };
        Refusal::new(Reason::Busy, text)
    }

    /// A sentence about the entity that must approve a session.
    fn about_entity(&self, entity: &Identity, what: &str) -> String {
        let name = self.node.shown_name(entity);
        format!("a rule asks {name} to approve this session, which {what}")
    }
}
