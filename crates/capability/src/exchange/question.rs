//! What a requester asks, and what an entity replies.

use levada_core::{
    Digest, Identity, OpeningKey, Params, RandomError, SealError, SecretKey, UnixTime, label, seal,
    sha256, wire,
};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::Capability;
use crate::reader::{are_addresses, is_name};

/// The longest encoding of a question, in bytes: the parameters of one link, and room for the rest.
const MAX_QUESTION: usize = Params::MAX_LEN + 16 * 1024;
/// By how much two clocks may differ, in seconds.
const SLACK: u64 = 300;

/// A session to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The node that offers the service.
    pub node: Identity,
    /// Where it may be: hints, never trusted.
    pub addresses: Vec<String>,
    /// The service's name there.
    pub service: String,
    /// The session's parameters; `framing` is the node's to set.
    pub params: Params,
    /// When the right to start shall end; `None` leaves it to the entity and the node.
    pub expires: Option<UnixTime>,
    /// How often the session may be started; 0 counts as 1.
    pub uses: u32,
}

/// The way of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The node whose service carries it.
    pub via: Identity,
    /// Who shall reply.
    pub entity: Identity,
    /// The challenge of the entity's registration.
    pub challenge: [u8; 32],
    /// When the requester stops waiting.
    pub until: UnixTime,
}

/// A question that is well-formed and signed by its requester. Whether it is for us, and new,
/// [`crate::exchange::Hearing`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who asks, and whom the capability will be bound to.
    pub requester: Identity,
    /// The way it took.
    pub route: Route,
    /// What is asked for.
    pub wish: Wish,
    /// What the reply is sealed to.
    key: Vec<u8>,
    /// SHA-256 of its body: what the reply is bound to.
    digest: Digest,
}

/// Why a question does not hold.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum QuestionError {
    /// Not a question, or one with a part outside its bounds.
    #[error("the question is malformed")]
    Malformed,
    /// Not signed by the requester whom it names.
    #[error("the question is not signed by who is said to ask")]
    Signature,
    /// It is for somebody else, or came another way.
    #[error("the question is for another entity, or came by another service")]
    Astray,
    /// It names another challenge than the one that holds.
    #[error("the question was made for another registration")]
    Stale,
    /// It was heard before.
    #[error("the question was asked before")]
    Repeated,
    /// No more questions are heard under this challenge.
    #[error("too many questions were asked since the registration")]
    TooMany,
}

/// What an entity replies.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Yes, and this is it.
    Granted(Box<Capability>),
    /// The entity does not want to.
    No(wire::Refusal),
    /// The entity wanted to, and could not.
    Failed(wire::Refusal),
}

impl Question {
    /// Reads a question and checks its signature.
    ///
    /// # Errors
    /// [`QuestionError::Malformed`] or [`QuestionError::Signature`].
    pub fn verify(signed: &wire::SignedQuestion) -> Result<Self, QuestionError> {
        if signed.body.len() > MAX_QUESTION {
            return Err(QuestionError::Malformed);
        }
        let question = Self::read(&signed.body).ok_or(QuestionError::Malformed)?;
        let held = question.requester.verify(label::QUESTION, &signed.body, &signed.signature);
        held.map_err(|_| QuestionError::Signature)?;
        Ok(question)
    }

    /// What tells this question from every other.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Whether the requester has stopped waiting, with some minutes for clocks that differ.
    pub fn is_late(&self, now: UnixTime) -> bool {
        now.0 > self.route.until.0.saturating_add(SLACK)
    }

    /// Seals `reply` for the requester, signed by the entity whose key this is.
    ///
    /// # Errors
    /// [`SealError`] if the key of the question is none.
    pub fn reply(&self, key: &SecretKey, reply: &Reply) -> Result<wire::SealedReply, SealError> {
        let sealed = seal(&self.key, &self.digest, &reply.encode())?;
        let signed = signed_part(&self.digest, &sealed.encapsulation, &sealed.bytes);
        let signature = key.sign(label::REPLY, &signed).to_vec();
        let (encapsulation, sealed) = (sealed.encapsulation, sealed.bytes);
        Ok(wire::SealedReply { encapsulation, sealed, signature })
    }

    fn read(body: &[u8]) -> Option<Self> {
        let message: wire::Question = wire::decode(body).ok()?;
        let identity = |bytes: &[u8]| Identity::try_from(bytes).ok();
        let fixed = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).ok();
        // Makes two questions differ, and says nothing else.
        fixed(&message.nonce)?;
        if message.key.len() != OpeningKey::PUBLIC_LEN {
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
            wish: Wish::read(&message)?,
            key: message.key,
            digest: sha256(&[body]),
        })
    }
}

impl Wish {
    fn read(message: &wire::Question) -> Option<Self> {
        let mut params = Params::new();
        for pair in &message.parameters {
            params.add(&pair.key, pair.value.clone()).ok()?;
        }
        let wish = Self {
            node: Identity::try_from(message.node.as_slice()).ok()?,
            addresses: message.addresses.clone(),
            service: message.service.clone(),
            params,
            expires: (message.expires != 0).then_some(UnixTime(message.expires)),
            uses: message.uses.max(1),
        };
        wish.is_within_bounds().then_some(wish)
    }

    pub(super) fn is_within_bounds(&self) -> bool {
        is_name(&self.service)
            && are_addresses(&self.addresses)
            && self.params.value(Params::FRAMING).is_none()
            && self.params.encode().len() <= Params::MAX_LEN
    }
}

impl Reply {
    /// Reads a reply that was opened.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let message: wire::Reply = wire::decode(bytes).ok()?;
        match message.reply? {
            wire::reply::Reply::Capability(text) => {
                let capability = Capability::from_text(&Zeroizing::new(text)).ok()?;
                Some(Self::Granted(Box::new(capability)))
            }
            wire::reply::Reply::No(refusal) => Some(Self::No(refusal)),
            wire::reply::Reply::Failed(refusal) => Some(Self::Failed(refusal)),
        }
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let reply = match self {
            Self::Granted(capability) => {
                wire::reply::Reply::Capability(capability.to_text().as_str().to_owned())
            }
            Self::No(refusal) => wire::reply::Reply::No(refusal.clone()),
            Self::Failed(refusal) => wire::reply::Reply::Failed(refusal.clone()),
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
    /// A library that makes no key makes no question.
    fn from(_: RandomError) -> Self {
        Self::Malformed
    }
}

/// What an entity signs: SHA-256(digest of the question 32 ‖ encapsulation ‖ sealed). Which question
/// it is says who asked, who shall reply, and on which way.
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
            let (body, signature) = (body.clone(), signature.clone());
            assert!(Question::verify(&wire::SignedQuestion { body, signature }).is_err());
        });
    }

    #[test]
    fn arbitrary_fields_are_taken_only_within_their_bounds() {
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
            });
            let signature = key.sign(label::QUESTION, &body).to_vec();
            if let Ok(question) = Question::verify(&wire::SignedQuestion { body, signature }) {
                assert!(question.wish.is_within_bounds() && question.wish.uses > 0);
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
