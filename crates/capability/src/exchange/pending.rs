//! The requester's side: makes a question and checks its reply.

use levada_core::{
    Digest, Identity, OpeningKey, Params, Random, Sealed, SecretKey, label, sha256, wire,
};
use thiserror::Error;

use super::question::{QuestionError, Reply, Route, SessionRequest, signed_part};
use crate::reader::{MAX_ADDRESSES, is_name};
use crate::{Capability, Rights};

/// A question that waits for its reply.
pub struct PendingQuestion {
    opening: OpeningKey,
    digest: Digest,
    requester: Identity,
    entity: Identity,
    request: SessionRequest,
    /// True if a node asks because of one of its rules.
    of_node: bool,
}

/// Why a reply was refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ReplyError {
    /// It is not signed by the entity for this question.
    #[error("it is not signed by the entity for this question")]
    Signature,
    /// It cannot be decrypted or decoded.
    #[error("it cannot be decrypted or decoded")]
    Sealed,
    /// Its capability differs from the requested one; the text says how.
    #[error("the capability in it is {0}")]
    Other(&'static str),
    /// It answers another kind of question.
    #[error("it answers another kind of question")]
    Kind,
}

impl PendingQuestion {
    /// Makes a question for `request`, signed by `key`. Invalid addresses are left out.
    ///
    /// # Errors
    /// [`QuestionError::Malformed`] if the request is outside its limits, or no key could be
    /// generated.
    pub fn new(
        key: &SecretKey,
        route: &Route,
        request: SessionRequest,
        random: &dyn Random,
    ) -> Result<(Self, wire::SignedQuestion), QuestionError> {
        Self::with_subject(key, route, request, None, random)
    }

    /// Makes a question of a node with this `key`: whether it may give its session `request` to
    /// `subject`, who requests it.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn of_node(
        key: &SecretKey,
        route: &Route,
        request: SessionRequest,
        subject: Identity,
        random: &dyn Random,
    ) -> Result<(Self, wire::SignedQuestion), QuestionError> {
        Self::with_subject(key, route, request, Some(subject), random)
    }

    fn with_subject(
        key: &SecretKey,
        route: &Route,
        mut request: SessionRequest,
        subject: Option<Identity>,
        random: &dyn Random,
    ) -> Result<(Self, wire::SignedQuestion), QuestionError> {
        request.addresses.retain(|address| is_name(address));
        request.addresses.truncate(MAX_ADDRESSES);
        request.uses = request.uses.max(1);
        if !request.is_within_bounds() {
            return Err(QuestionError::Malformed);
        }
        let opening = OpeningKey::generate()?;
        let mut nonce = [0; 32];
        random.fill(&mut nonce)?;
        let requester = key.identity();
        let question = wire::Question {
            subject: subject.map_or_else(Vec::new, |subject| subject.as_bytes().to_vec()),
            ..message(requester, route, &request, opening.public(), &nonce)
        };
        let body = wire::encode(&question);
        let signature = key.sign(label::QUESTION, &body).to_vec();
        let digest = sha256(&[&body]);
        let entity = route.entity;
        let of_node = subject.is_some();
        let pending = Self { opening, digest, requester, entity, request, of_node };
        Ok((pending, wire::SignedQuestion { body, signature }))
    }

    /// Opens and checks the reply. A capability in it matches the request and is bound to the
    /// requester; only its node can verify the signatures and the secret.
    ///
    /// # Errors
    /// [`ReplyError`] if the entity did not make it for this question, or it was changed.
    pub fn read(&self, reply: &wire::SealedReply) -> Result<Reply, ReplyError> {
        let signed = signed_part(&self.digest, &reply.encapsulation, &reply.sealed);
        let verified = self.entity.verify(label::REPLY, &signed, &reply.signature);
        verified.map_err(|_| ReplyError::Signature)?;
        let encapsulation = reply.encapsulation.clone();
        let bytes = reply.sealed.clone();
        let opened = self.opening.open(&self.digest, &Sealed { encapsulation, bytes });
        let opened = opened.map_err(|_| ReplyError::Sealed)?;
        let reply = Reply::decode(&opened).ok_or(ReplyError::Sealed)?;
        match &reply {
            Reply::Granted(_) if self.of_node => return Err(ReplyError::Kind),
            Reply::Permitted if !self.of_node => return Err(ReplyError::Kind),
            Reply::Granted(capability) => self.check(capability)?,
            _ => {}
        }
        Ok(reply)
    }

    fn check(&self, capability: &Capability) -> Result<(), ReplyError> {
        let request = &self.request;
        let params = capability.params().iter().filter(|(key, _)| *key != Params::FRAMING);
        let difference = if capability.node() != request.node {
            "for another node"
        } else if capability.holder() != self.requester {
            "bound to another identity"
        } else if capability.service() != request.service {
            "for another service"
        } else if !params.eq(request.params.iter()) {
            "for other parameters"
        } else if capability.uses() != request.uses {
            "for another number of uses"
        } else if request.expires.is_some_and(|expires| capability.expires() != expires) {
            "for another time"
        } else if !capability.rights().contains(Rights::EXECUTE) {
            "without the right to execute"
        } else {
            return Ok(());
        };
        Err(ReplyError::Other(difference))
    }
}

fn message(
    requester: Identity,
    route: &Route,
    request: &SessionRequest,
    key: &[u8],
    nonce: &[u8; 32],
) -> wire::Question {
    let bytes = |identity: Identity| identity.as_bytes().to_vec();
    let pairs = request.params.iter();
    let pairs = pairs.map(|(key, value)| wire::Pair { key: key.into(), value: value.into() });
    wire::Question {
        via: bytes(route.via),
        requester: bytes(requester),
        entity: bytes(route.entity),
        challenge: route.challenge.to_vec(),
        nonce: nonce.to_vec(),
        until: route.until.0,
        key: key.to_vec(),
        node: bytes(request.node),
        addresses: request.addresses.clone(),
        service: request.service.clone(),
        parameters: pairs.collect(),
        expires: request.expires.map_or(0, |time| time.0),
        uses: request.uses,
        subject: Vec::new(),
    }
}
