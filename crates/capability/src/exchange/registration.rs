//! The entity's side: accepts each question once.

use std::collections::HashSet;

use levada_core::{Digest, Identity, Random, RandomError, wire};

use super::question::{Question, QuestionError};

/// An entity's registration at a service: its challenge, and the digests of accepted questions.
///
/// The entity chooses a random challenge, so a replayed question of an earlier registration is
/// refused without comparing clocks. Within one registration, the digests detect replays.
pub struct Registration {
    entity: Identity,
    via: Identity,
    challenge: [u8; 32],
    accepted: HashSet<Digest>,
}

impl Registration {
    /// Most questions under one challenge; then [`Self::renew`] must choose another.
    pub const MAX_QUESTIONS: usize = 4096;

    /// A registration of `entity` at a service of the node `via`, with a new challenge.
    ///
    /// # Errors
    /// [`RandomError`] if the random source failed.
    pub fn new(entity: Identity, via: Identity, random: &dyn Random) -> Result<Self, RandomError> {
        let mut registration = Self { entity, via, challenge: [0; 32], accepted: HashSet::new() };
        registration.renew(random)?;
        Ok(registration)
    }

    /// The current challenge.
    pub fn challenge(&self) -> &[u8; 32] {
        &self.challenge
    }

    /// Whether this challenge has reached [`Self::MAX_QUESTIONS`].
    pub fn is_full(&self) -> bool {
        self.accepted.len() >= Self::MAX_QUESTIONS
    }

    /// Chooses a new challenge; questions for the old one become stale.
    ///
    /// # Errors
    /// [`RandomError`] if the random source failed; the old challenge then stays valid.
    pub fn renew(&mut self, random: &dyn Random) -> Result<(), RandomError> {
        let mut challenge = [0; 32];
        random.fill(&mut challenge)?;
        self.challenge = challenge;
        self.accepted.clear();
        Ok(())
    }

    /// Accepts a question that is for this entity, of this registration, and new.
    ///
    /// # Errors
    /// [`QuestionError`] for any other. It must get no reply, not even a denial: a relay that
    /// replays an answered question could deliver that reply in place of the first.
    pub fn accept(&mut self, signed: &wire::SignedQuestion) -> Result<Question, QuestionError> {
        let question = Question::verify(signed)?;
        if question.route.entity != self.entity || question.route.via != self.via {
            return Err(QuestionError::Misdirected);
        }
        if question.route.challenge != self.challenge {
            return Err(QuestionError::Stale);
        }
        if self.accepted.contains(question.digest()) {
            return Err(QuestionError::Repeated);
        }
        if self.is_full() {
            return Err(QuestionError::TooMany);
        }
        self.accepted.insert(*question.digest());
        Ok(question)
    }
}
