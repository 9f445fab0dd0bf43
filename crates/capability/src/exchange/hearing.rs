//! The entity's side: hears each question once.

use std::collections::HashSet;

use levada_core::{Digest, Identity, Random, RandomError, wire};

use super::question::{Question, QuestionError};

/// What an entity remembers of one registration: its challenge, and the questions it has heard.
///
/// A challenge is random and made by the entity, so a question of an earlier registration, or one
/// made for another entity, is told apart without a clock; and within one registration no question is
/// heard twice.
pub struct Hearing {
    me: Identity,
    via: Identity,
    challenge: [u8; 32],
    heard: HashSet<Digest>,
}

impl Hearing {
    /// Most questions under one challenge; after them [`Self::renew`] makes another.
    pub const MAX_HEARD: usize = 4096;

    /// Nothing heard yet, for the entity `me` that registers at a service of the node `via`.
    ///
    /// # Errors
    /// [`RandomError`] if there is no challenge.
    pub fn new(me: Identity, via: Identity, random: &dyn Random) -> Result<Self, RandomError> {
        let mut hearing = Self { me, via, challenge: [0; 32], heard: HashSet::new() };
        hearing.renew(random)?;
        Ok(hearing)
    }

    /// What to register with.
    pub fn challenge(&self) -> &[u8; 32] {
        &self.challenge
    }

    /// Whether no further question can be heard under this challenge.
    pub fn is_full(&self) -> bool {
        self.heard.len() >= Self::MAX_HEARD
    }

    /// Takes another challenge: questions made for the one before are stale from now on.
    ///
    /// # Errors
    /// [`RandomError`] if there is none; then the old one holds.
    pub fn renew(&mut self, random: &dyn Random) -> Result<(), RandomError> {
        let mut challenge = [0; 32];
        random.fill(&mut challenge)?;
        self.challenge = challenge;
        self.heard.clear();
        Ok(())
    }

    /// Takes a question that is for this entity, of this registration, and new.
    ///
    /// # Errors
    /// [`QuestionError`] for any other: it deserves no reply, not even a no, because a reply would
    /// serve whoever repeats a question that was answered.
    pub fn hear(&mut self, signed: &wire::SignedQuestion) -> Result<Question, QuestionError> {
        let question = Question::verify(signed)?;
        if question.route.entity != self.me || question.route.via != self.via {
            return Err(QuestionError::Astray);
        }
        if question.route.challenge != self.challenge {
            return Err(QuestionError::Stale);
        }
        if self.heard.contains(question.digest()) {
            return Err(QuestionError::Repeated);
        }
        if self.is_full() {
            return Err(QuestionError::TooMany);
        }
        self.heard.insert(*question.digest());
        Ok(question)
    }
}
