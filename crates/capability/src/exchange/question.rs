//! The question of a requester and the reply of an entity.

use levada_core::{
    Digest, Identity, OpeningKey, Params, RandomError, SealError, SecretKey, UnixTime, label, seal,
    sha256, wire,
};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::Capability;
use crate::reader::{are_addresses, is_name};

/// The longest encoding of a question, in bytes: the parameters of one link, and 16 KiB for the
/// other fields.
const MAX_QUESTION: usize = Params::MAX_LEN + 16 * 1024;
/// The tolerated difference of two clocks, in seconds.
const CLOCK_SKEW: u64 = 300;

/// The session that a requester asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// The node that offers the service.
    pub node: Identity,
    /// Its addresses: unauthenticated hints.
    pub addresses: Vec<String>,
    /// The service's name there.
    pub service: String,
    /// The session's parameters without `framing`, which the node sets.
    pub params: Params,
    /// When the right to start shall end; `None`: the entity and the node decide.
    pub expires: Option<UnixTime>,
    /// How many times the session may be started; 0 counts as 1.
    pub uses: u32,
}

/// The route of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The node of the relaying service.
    pub via: Identity,
    /// The entity that decides.
    pub entity: Identity,
    /// The challenge of the entity's registration.
    pub challenge: [u8; 32],
    /// When the requester stops waiting.
    pub until: UnixTime,
}

/// A question that is well-formed and signed by its requester.
/// [`crate::exchange::Registration`] checks its destination and that it is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The signer, and the holder of the capability asked for.
    pub requester: Identity,
    /// The route to the entity.
    pub route: Route,
    /// The session asked for.
    pub request: SessionRequest,
    /// Only in a question that the node of the service asks because of one of its rules: the
    /// identity that requests the session. The signer is then this node, and no capability is asked
    /// for.
    pub subject: Option<Identity>,
    /// The public key that the reply is sealed to.
    key: Vec<u8>,
    /// SHA-256 of the body; the reply is bound to it.
    digest: Digest,
}

/// Why a question was refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum QuestionError {
    /// Not a question, or a field is outside its limits.
    #[error("the question is malformed")]
    Malformed,
    /// Not signed by the requester that it names.
    #[error("the question is not signed by its requester")]
    Signature,
    /// It names another entity or another service.
    #[error("the question is for another entity, or came by another service")]
    Misdirected,
    /// It names another challenge than the current one.
    #[error("the question was made for another registration")]
    Stale,
    /// It was accepted before.
    #[error("the question was asked before")]
    Repeated,
    /// The challenge has reached its limit of questions.
    #[error("too many questions were asked since the registration")]
    TooMany,
}

/// The reply of an entity.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The entity grants this capability.
    Granted(Box<Capability>),
    /// The entity denies the request.
    No(wire::Refusal),
    /// The entity allows the request, and could not obtain the capability.
    Failed(wire::Refusal),
    /// The node may give the session to the subject of its question.
    Permitted,
}

impl Question {
    /// Decodes a question and checks its signature.
    ///
    /// # Errors
    /// [`QuestionError::Malformed`] or [`QuestionError::Signature`].
    pub fn verify(signed: &wire::SignedQuestion) -> Result<Self, QuestionError> {
        if signed.body.len() > MAX_QUESTION {
            return Err(QuestionError::Malformed);
        }
        let question = Self::read(&signed.body).ok_or(QuestionError::Malformed)?;
        let verified = question.requester.verify(label::QUESTION, &signed.body, &signed.signature);
        verified.map_err(|_| QuestionError::Signature)?;
        Ok(question)
    }

    /// The identity that the session is for.
    pub fn subject(&self) -> Identity {
        self.subject.unwrap_or(self.requester)
    }

    /// SHA-256 of the body, which identifies this question.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Whether the requester stopped waiting more than 5 minutes ago (for clocks that differ).
    pub fn is_expired(&self, now: UnixTime) -> bool {
        now.0 > self.route.until.0.saturating_add(CLOCK_SKEW)
    }

    /// Seals `reply` for the requester, signed with the entity's `key`.
    ///
    /// # Errors
    /// [`SealError`] if the question's key is invalid.
    pub fn reply(&self, key: &SecretKey, reply: &Reply) -> Result<wire::SealedReply, SealError> {
        let sealed = seal(&self.key, &self.digest, &reply.encode())?;
        let signed = signed_part(&self.digest, &sealed.encapsulation, &sealed.bytes);
        let signature = key.sign(label::REPLY, &signed).to_vec();
        let encapsulation = sealed.encapsulation;
        let sealed = sealed.bytes;
        Ok(wire::SealedReply { encapsulation, sealed, signature })
    }

    fn read(body: &[u8]) -> Option<Self> {
        let message: wire::Question = wire::decode(body).ok()?;
        let identity = |bytes: &[u8]| Identity::try_from(bytes).ok();
        let fixed = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).ok();
        // The nonce only makes equal requests differ; its length is checked.
        fixed(&message.nonce)?;
        if message.key.len() != OpeningKey::PUBLIC_LEN {
            return None;
        }
        let subject = match message.subject.as_slice() {
            [] => None,
            bytes => Some(identity(bytes)?),
        };
        // Only a node asks about others, and only about its own services.
        let of_node = message.requester == message.via && message.requester == message.node;
        if subject.is_some() && !of_node {
            return None;
        }
        Some(Self {
            requester: identity(&message.requester)?,
            route: Route {
                via: identity(&message.via)?,
                entity: identity(&message.entity)?,
                challenge: fixed(&message.challenge)?,
                until: UnixTime(message.until),
            },
            request: SessionRequest::read(&message)?,
            subject,
            key: message.key,
            digest: sha256(&[body]),
        })
    }
}

impl SessionRequest {
    fn read(message: &wire::Question) -> Option<Self> {
        let mut params = Params::new();
        for pair in &message.parameters {
            params.add(&pair.key, pair.value.clone()).ok()?;
        }
        let request = Self {
            node: Identity::try_from(message.node.as_slice()).ok()?,
            addresses: message.addresses.clone(),
            service: message.service.clone(),
            params,
            expires: (message.expires != 0).then_some(UnixTime(message.expires)),
            uses: message.uses.max(1),
        };
        request.is_within_bounds().then_some(request)
    }

    pub(super) fn is_within_bounds(&self) -> bool {
        is_name(&self.service)
            && are_addresses(&self.addresses)
            && self.params.value(Params::FRAMING).is_none()
            && self.params.encode().len() <= Params::MAX_LEN
    }
}

impl Reply {
    /// Decodes a decrypted reply.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let message: wire::Reply = wire::decode(bytes).ok()?;
        match message.reply? {
            wire::reply::Reply::Capability(text) => {
                let capability = Capability::from_text(&Zeroizing::new(text)).ok()?;
                Some(Self::Granted(Box::new(capability)))
            }
            wire::reply::Reply::No(refusal) => Some(Self::No(refusal)),
            wire::reply::Reply::Failed(refusal) => Some(Self::Failed(refusal)),
            wire::reply::Reply::Permitted(_) => Some(Self::Permitted),
        }
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let reply = match self {
            Self::Granted(capability) => {
                wire::reply::Reply::Capability(capability.to_text().as_str().to_owned())
            }
            Self::No(refusal) => wire::reply::Reply::No(refusal.clone()),
            Self::Failed(refusal) => wire::reply::Reply::Failed(refusal.clone()),
            Self::Permitted => wire::reply::Reply::Permitted(wire::Permitted {}),
        };
        let mut message = wire::Reply { reply: Some(reply) };
        let bytes = Zeroizing::new(wire::encode(&message));
        if let Some(wire::reply::Reply::Capability(text)) = &mut message.reply {
            text.zeroize();
        }
        bytes
    }
}

impl From<RandomError> for QuestionError {
    /// Without random bytes no key can be generated, and without a key no question.
    fn from(_: RandomError) -> Self {
        Self::Malformed
    }
}

/// The bytes that an entity signs: SHA-256(digest of the question 32 ‖ encapsulation ‖ sealed). The
/// digest covers requester, entity and route.
pub(super) fn signed_part(digest: &Digest, encapsulation: &[u8], sealed: &[u8]) -> Digest {
    sha256(&[digest, encapsulation, sealed])
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::SystemRandom;

    #[test]
    fn arbitrary_bodies_never_panic() {
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(body, signature)| {
            let body = body.clone();
            let signature = signature.clone();
            assert!(Question::verify(&wire::SignedQuestion { body, signature }).is_err());
        });
    }

    #[test]
    fn accepted_questions_are_within_their_limits() {
        let key = SecretKey::generate(&SystemRandom).unwrap();
        let own = key.identity().as_bytes().to_vec();
        type Fields = (Vec<(String, Vec<u8>)>, Vec<String>, String, u64, u32);
        bolero::check!().with_type::<Fields>().for_each(|fields| {
            let (pairs, addresses, service, expires, uses) = fields.clone();
            let pair = |(key, value)| wire::Pair { key, value };
            let body = wire::encode(&wire::Question {
                via: own.clone(),
                requester: own.clone(),
                entity: own.clone(),
                challenge: vec![1; 32],
                nonce: vec![2; 32],
                until: expires,
                key: vec![3; OpeningKey::PUBLIC_LEN],
                node: own.clone(),
                addresses,
                service,
                parameters: pairs.into_iter().map(pair).collect(),
                expires,
                uses,
                subject: Vec::new(),
            });
            let signature = key.sign(label::QUESTION, &body).to_vec();
            if let Ok(question) = Question::verify(&wire::SignedQuestion { body, signature }) {
                assert!(question.request.is_within_bounds() && question.request.uses > 0);
            }
        });
    }

    #[test]
    fn arbitrary_replies_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = Reply::decode(bytes);
        });
    }
}
