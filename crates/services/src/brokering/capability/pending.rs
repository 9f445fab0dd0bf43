//! Who is registered, and which questions wait for their reply.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use levada_capability::exchange::Question;
use levada_core::Identity;
use levada_core::wire::{Cause, Ended, SealedReply, SignedQuestion};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::{Limits, away};

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
    questions: HashMap<u64, Waiting>,
}

struct Entity {
    registration: u64,
    challenge: [u8; 32],
    orders: Sender<Order>,
}

struct Waiting {
    requester: Identity,
    entity: Identity,
    registration: u64,
    /// Until the entity has it. A question that is withdrawn before takes no memory any more.
    question: Option<SignedQuestion>,
    reply: oneshot::Sender<SealedReply>,
}

/// What an entity is to be told. When no more orders can come, another registration has replaced it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// The question with this number.
    Ask(u64),
    /// Nobody waits for the reply to this number any more.
    Withdraw(u64),
}

/// An entity that is registered; it is no more when this is dropped, and whoever waits for a reply of
/// it learns so.
pub(super) struct Registration<'a> {
    pending: &'a PendingRequests,
    entity: Identity,
    number: u64,
}

/// A place in the table of questions; it is withdrawn when this is dropped before the reply came.
pub(super) struct Place<'a> {
    pending: &'a PendingRequests,
    number: u64,
}

impl PendingRequests {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, table: Mutex::default() }
    }

    /// Registers `entity`, in the place of an earlier registration of it: whoever comes back after
    /// his connection was lost is let in before the loss is noticed here.
    pub(super) fn register(
        &self,
        entity: Identity,
        challenge: [u8; 32],
    ) -> Result<(Registration<'_>, Receiver<Order>), Ended> {
        // Room for every question and for its end: an entity that reads misses nothing.
        let (orders, receiver) = channel(2 * self.limits.questions);
        let mut table = self.lock();
        if !table.entities.contains_key(&entity) && table.entities.len() >= self.limits.entities {
            return Err(Ended::new(Cause::Busy, "as many entities are registered as may be"));
        }
        let registration = table.number();
        table.entities.insert(entity, Entity { registration, challenge, orders });
        table.questions.retain(|_, waiting| waiting.entity != entity);
        Ok((Registration { pending: self, entity, number: registration }, receiver))
    }

    /// The challenge of an entity that is registered.
    pub(super) fn challenge(&self, entity: &Identity) -> Result<[u8; 32], Ended> {
        let table = self.lock();
        let entity = table.entities.get(entity);
        entity.map(|entity| entity.challenge).ok_or_else(not_registered)
    }

    /// Passes a question on; its reply comes by the receiver, which fails if the entity goes away.
    pub(super) fn ask(
        &self,
        question: &Question,
        signed: SignedQuestion,
    ) -> Result<(Place<'_>, oneshot::Receiver<SealedReply>), Ended> {
        let mut table = self.lock();
        let (requester, entity) = (question.requester, question.route.entity);
        table.check_room(&self.limits, &requester)?;
        let number = table.number();
        let Some(found) = table.entities.get(&entity) else { return Err(not_registered()) };
        if found.challenge != question.route.challenge {
            return Err(away("the entity has registered anew in this moment; ask again"));
        }
        if found.orders.try_send(Order::Ask(number)).is_err() {
            return Err(Ended::new(Cause::Busy, "the entity takes no more questions for now"));
        }
        let registration = found.registration;
        let (reply, receiver) = oneshot::channel();
        let question = Some(signed);
        let waiting = Waiting { requester, entity, registration, question, reply };
        table.questions.insert(number, waiting);
        Ok((Place { pending: self, number }, receiver))
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

    fn check_room(&self, limits: &Limits, requester: &Identity) -> Result<(), Ended> {
        let own = self.questions.values().filter(|waiting| waiting.requester == *requester);
        if own.count() >= limits.questions_per_requester {
            let text = "as many questions of yours wait for a reply as may";
            return Err(Ended::new(Cause::Busy, text));
        }
        if self.questions.len() >= limits.questions {
            return Err(Ended::new(Cause::Busy, "as many questions wait for a reply as may"));
        }
        Ok(())
    }
}

impl Registration<'_> {
    /// Another challenge holds from now on, unless another registration has taken this one's place.
    pub(super) fn renew(&self, challenge: [u8; 32]) {
        let mut table = self.pending.lock();
        let entity = table.entities.get_mut(&self.entity);
        if let Some(entity) = entity.filter(|own| own.registration == self.number) {
            entity.challenge = challenge;
        }
    }

    /// The question with this number, once; `None` if it was withdrawn.
    pub(super) fn question(&self, number: u64) -> Option<SignedQuestion> {
        let mut table = self.pending.lock();
        let waiting = table.questions.get_mut(&number);
        waiting.filter(|waiting| waiting.registration == self.number)?.question.take()
    }

    /// Hands a reply to who waits for it. Of a question that was withdrawn, or that is another
    /// registration's, nobody hears.
    pub(super) fn answer(&self, number: u64, reply: SealedReply) {
        let mut table = self.pending.lock();
        let own = |waiting: &Waiting| waiting.registration == self.number;
        if !table.questions.get(&number).is_some_and(own) {
            return;
        }
        if let Some(waiting) = table.questions.remove(&number) {
            // Whoever waited may have gone in this moment.
            let _ = waiting.reply.send(reply);
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut table = self.pending.lock();
        if table.entities.get(&self.entity).is_some_and(|own| own.registration == self.number) {
            table.entities.remove(&self.entity);
        }
        table.questions.retain(|_, waiting| waiting.registration != self.number);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut table = self.pending.lock();
        let Some(waiting) = table.questions.remove(&self.number) else { return };
        if waiting.question.is_some() {
            return;
        }
        let entity = table.entities.get(&waiting.entity);
        if let Some(entity) = entity.filter(|own| own.registration == waiting.registration) {
            // An entity that does not read learns of nothing.
            let _ = entity.orders.try_send(Order::Withdraw(self.number));
        }
    }
}

fn not_registered() -> Ended {
    away("the entity is not registered here")
}
