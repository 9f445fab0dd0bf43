//! The registered entities, and the questions that wait for their reply.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use levada_capability::exchange::Question;
use levada_core::Identity;
use levada_core::wire::{Cause, Ended, SealedReply, SignedQuestion};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// The limits of the service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Registered entities.
    pub(super) entities: usize,
    /// Questions that wait for their reply.
    pub(super) questions: usize,
    /// Questions of one requester that wait for their reply.
    pub(super) questions_per_requester: usize,
}

/// The table of one service.
pub(super) struct PendingRequests {
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// The last number given to a registration or a question.
    last: u64,
    entities: HashMap<Identity, Entity>,
    questions: HashMap<u64, Pending>,
}

struct Entity {
    registration: u64,
    challenge: [u8; 32],
    /// True if it answers questions of the node itself.
    answers_node: bool,
    notices: Sender<Notice>,
}

struct Pending {
    /// The identity that the session is for, whose questions are counted.
    requester: Identity,
    /// True if a rule of the node asks it. Such questions have a limit apart from all others.
    is_of_rule: bool,
    entity: Identity,
    registration: u64,
    /// `None` once the session of the entity has taken it to send it.
    question: Option<SignedQuestion>,
    reply: oneshot::Sender<SealedReply>,
}

/// A notice for the session of an entity. The sender is dropped when another registration replaces
/// this one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notice {
    /// The question with this number was asked.
    Ask(u64),
    /// The question with this number was withdrawn.
    Withdraw(u64),
}

/// The registration of an entity. Dropping it removes the entity, and fails the questions that wait
/// for its reply.
pub(super) struct Registration<'a> {
    pending: &'a PendingRequests,
    entity: Identity,
    number: u64,
}

/// A question in the table. Dropping this before the reply withdraws the question.
pub(super) struct PendingGuard<'a> {
    pending: &'a PendingRequests,
    number: u64,
}

impl PendingRequests {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, table: Mutex::default() }
    }

    /// Registers `entity`, and replaces an earlier registration of it: an entity that has lost its
    /// connection can register again before the loss is detected here.
    pub(super) fn register(
        &self,
        entity: Identity,
        challenge: [u8; 32],
        answers_node: bool,
    ) -> Result<(Registration<'_>, Receiver<Notice>), Ended> {
        // Room for two notices of each question, of requesters and of rules: an entity that reads
        // misses none.
        let (notices, receiver) = channel(4 * self.limits.questions);
        let mut table = self.lock();
        if !table.entities.contains_key(&entity) && table.entities.len() >= self.limits.entities {
            let text = "the service has reached its limit of registered entities";
            return Err(Ended::new(Cause::Busy, text));
        }
        let registration = table.number();
        table.entities.insert(entity, Entity { registration, challenge, answers_node, notices });
        table.questions.retain(|_, pending| pending.entity != entity);
        Ok((Registration { pending: self, entity, number: registration }, receiver))
    }

    /// The challenge of a registered entity.
    pub(super) fn challenge(&self, entity: &Identity) -> Result<[u8; 32], Ended> {
        let table = self.lock();
        let entity = table.entities.get(entity);
        entity.map(|entity| entity.challenge).ok_or_else(not_registered)
    }

    /// The challenge of a registered entity that answers questions of the node itself; `None` if
    /// the entity is not registered.
    pub(super) fn challenge_for_node(&self, entity: &Identity) -> Option<Result<[u8; 32], Ended>> {
        let table = self.lock();
        let entity = table.entities.get(entity)?;
        let text = "its version of levada does not answer questions of a node's rules";
        let is_able = entity.answers_node.then_some(entity.challenge);
        Some(is_able.ok_or_else(|| away(text)))
    }

    /// Passes a question to its entity. The receiver returns the reply, or fails if the entity
    /// disconnects.
    pub(super) fn ask(
        &self,
        question: &Question,
        signed: SignedQuestion,
    ) -> Result<(PendingGuard<'_>, oneshot::Receiver<SealedReply>), Ended> {
        let mut table = self.lock();
        let requester = question.subject();
        let entity = question.route.entity;
        let is_of_rule = question.subject.is_some();
        table.check_room(&self.limits, &requester, is_of_rule)?;
        let number = table.number();
        let Some(found) = table.entities.get(&entity) else { return Err(not_registered()) };
        if found.challenge != question.route.challenge {
            return Err(away("the entity has renewed its registration meanwhile; ask again"));
        }
        if found.notices.try_send(Notice::Ask(number)).is_err() {
            return Err(Ended::new(Cause::Busy, "the entity accepts no more questions; ask later"));
        }
        let registration = found.registration;
        let (reply, receiver) = oneshot::channel();
        let question = Some(signed);
        let pending = Pending { requester, is_of_rule, entity, registration, question, reply };
        table.questions.insert(number, pending);
        Ok((PendingGuard { pending: self, number }, receiver))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Table {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn check_room(
        &self,
        limits: &Limits,
        requester: &Identity,
        is_of_rule: bool,
    ) -> Result<(), Ended> {
        let own = self.questions.values().filter(|pending| pending.requester == *requester);
        if own.count() >= limits.questions_per_requester {
            let text = "your limit of questions that wait for a reply is reached";
            return Err(Ended::new(Cause::Busy, text));
        }
        let of_kind = self.questions.values().filter(|pending| pending.is_of_rule == is_of_rule);
        if of_kind.count() >= limits.questions {
            let text = "the service has reached its limit of questions that wait for a reply";
            return Err(Ended::new(Cause::Busy, text));
        }
        Ok(())
    }
}

impl Registration<'_> {
    /// Sets a new challenge, unless another registration has replaced this one.
    pub(super) fn renew(&self, challenge: [u8; 32]) {
        let mut table = self.pending.lock();
        let entity = table.entities.get_mut(&self.entity);
        if let Some(entity) = entity.filter(|own| own.registration == self.number) {
            entity.challenge = challenge;
        }
    }

    /// Takes the question with this number; `None` if it was withdrawn.
    pub(super) fn question(&self, number: u64) -> Option<SignedQuestion> {
        let mut table = self.pending.lock();
        let pending = table.questions.get_mut(&number);
        pending.filter(|pending| pending.registration == self.number)?.question.take()
    }

    /// Passes a reply to its requester. A reply to a question that was withdrawn, or was asked in
    /// another registration, is ignored.
    pub(super) fn answer(&self, number: u64, reply: SealedReply) {
        let mut table = self.pending.lock();
        let own = |pending: &Pending| pending.registration == self.number;
        if !table.questions.get(&number).is_some_and(own) {
            return;
        }
        if let Some(pending) = table.questions.remove(&number) {
            // The requester may have disconnected meanwhile.
            let _ = pending.reply.send(reply);
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut table = self.pending.lock();
        if table.entities.get(&self.entity).is_some_and(|own| own.registration == self.number) {
            table.entities.remove(&self.entity);
        }
        table.questions.retain(|_, pending| pending.registration != self.number);
    }
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.pending.lock();
        let Some(pending) = table.questions.remove(&self.number) else { return };
        if pending.question.is_some() {
            return;
        }
        let entity = table.entities.get(&pending.entity);
        if let Some(entity) = entity.filter(|own| own.registration == pending.registration) {
            // The queue is full only if the entity does not read.
            let _ = entity.notices.try_send(Notice::Withdraw(self.number));
        }
    }
}

fn not_registered() -> Ended {
    away("the entity is not registered here")
}

/// The end of a session whose entity is not reachable.
pub(super) fn away(text: &str) -> Ended {
    Ended::new(Cause::Away, text)
}
