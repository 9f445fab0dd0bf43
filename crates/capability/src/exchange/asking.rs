//! The requester's side: makes a question, and reads what comes back for it.

use levada_core::{
    Digest, Identity, OpeningKey, Params, Random, Sealed, SecretKey, label, sha256, wire,
};
use thiserror::Error;

use super::question::{QuestionError, Reply, Route, Wish, signed_part};
use crate::reader::{MAX_ADDRESSES, is_name};
use crate::{Capability, Rights};

/// A question that waits for its reply.
pub struct Asking {
    opening: OpeningKey,
    digest: Digest,
    requester: Identity,
    entity: Identity,
    wish: Wish,
}

/// Why what came back is not the reply to the question.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ReplyError {
    /// The entity did not sign it, or not for this question.
    #[error("it is not signed by the entity for this question")]
    Signature,
    /// It does not open, or is no reply.
    #[error("it cannot be read")]
    Sealed,
    /// A capability for something else.
    #[error("the capability in it is {0}")]
    Other(&'static str),
}

impl Asking {
    /// Makes a question for `wish`, signed by `key`. Addresses that cannot be hints are left out.
    ///
    /// # Errors
    /// [`QuestionError::Malformed`] if the wish is outside its bounds, or the library gave no key.
    pub fn new(
        key: &SecretKey,
        route: &Route,
        mut wish: Wish,
        random: &dyn Random,
    ) -> Result<(Self, wire::SignedQuestion), QuestionError> {
        wish.addresses.retain(|address| is_name(address));
        wish.addresses.truncate(MAX_ADDRESSES);
        wish.uses = wish.uses.max(1);
        if !wish.is_within_bounds() {
            return Err(QuestionError::Malformed);
        }
        let opening = OpeningKey::generate()?;
        let mut nonce = [0; 32];
        random.fill(&mut nonce)?;
        let requester = key.identity();
        let body = wire::encode(&message(requester, route, &wish, opening.public(), &nonce));
        let signature = key.sign(label::QUESTION, &body).to_vec();
        let digest = sha256(&[&body]);
        let asking = Self { opening, digest, requester, entity: route.entity, wish };
        Ok((asking, wire::SignedQuestion { body, signature }))
    }

    /// Reads the reply. A capability in it is for what was asked, and bound to the requester; what its
    /// signatures and its secret are worth, its node says.
    ///
    /// # Errors
    /// [`ReplyError`] if somebody else made, changed or swapped it.
    pub fn read(&self, reply: &wire::SealedReply) -> Result<Reply, ReplyError> {
        let signed = signed_part(&self.digest, &reply.encapsulation, &reply.sealed);
        let held = self.entity.verify(label::REPLY, &signed, &reply.signature);
        held.map_err(|_| ReplyError::Signature)?;
        let (encapsulation, bytes) = (reply.encapsulation.clone(), reply.sealed.clone());
        let opened = self.opening.open(&self.digest, &Sealed { encapsulation, bytes });
        let opened = opened.map_err(|_| ReplyError::Sealed)?;
        let reply = Reply::decode(&opened).ok_or(ReplyError::Sealed)?;
        if let Reply::Granted(capability) = &reply {
            self.check(capability)?;
        }
        Ok(reply)
    }

    fn check(&self, capability: &Capability) -> Result<(), ReplyError> {
        let wish = &self.wish;
        let params = capability.params().iter().filter(|(key, _)| *key != Params::FRAMING);
        let other = if capability.node() != wish.node {
            "for another node"
        } else if capability.holder() != self.requester {
            "bound to another identity"
        } else if capability.service() != wish.service {
            "for another service"
        } else if !params.eq(wish.params.iter()) {
            "for other parameters"
        } else if capability.uses() != wish.uses {
            "for another number of uses"
        } else if wish.expires.is_some_and(|expires| capability.expires() != expires) {
            "for another time"
        } else if !capability.rights().contains(Rights::EXECUTE) {
            "without the right to execute"
        } else {
            return Ok(());
        };
        Err(ReplyError::Other(other))
    }
}

fn message(
    requester: Identity,
    route: &Route,
    wish: &Wish,
    key: &[u8],
    nonce: &[u8; 32],
) -> wire::Question {
    let bytes = |identity: Identity| identity.as_bytes().to_vec();
    let pairs = wish.params.iter();
    let pairs = pairs.map(|(key, value)| wire::Pair { key: key.into(), value: value.into() });
    wire::Question {
        via: bytes(route.via),
        requester: bytes(requester),
        entity: bytes(route.entity),
        challenge: route.challenge.to_vec(),
        nonce: nonce.to_vec(),
        until: route.until.0,
        key: key.to_vec(),
        node: bytes(wish.node),
        addresses: wish.addresses.clone(),
        service: wish.service.clone(),
        parameters: pairs.collect(),
        expires: wish.expires.map_or(0, |time| time.0),
        uses: wish.uses,
    }
}
