//! The session of an entity: it registers, hears questions, and replies.

use levada_core::Identity;
use levada_core::wire::{
    Answered, Asked, Cause, Ended, Register, Registered, Withdrawn, mediation::Part,
};
use levada_service::ServiceError;
use levada_session::{ReceiveHalf, SendHalf};
use tokio::select;
use tokio::sync::mpsc::Receiver;

use super::pending::{Order, PendingRequests, Registration};
use super::{deliver, expect, finish, malformed};
use crate::brokering::mediation;

/// Serves an entity until it leaves. When this is dropped, it is registered no more.
pub(super) async fn serve(
    pending: &PendingRequests,
    entity: Identity,
    mut send: SendHalf,
    mut receive: ReceiveHalf,
) -> Result<(), ServiceError> {
    let Part::Register(register) = expect(&mut receive).await? else { return Err(malformed()) };
    let registered = pending.register(entity, challenge(&register)?);
    let (registration, mut orders) = match registered {
        Ok(registered) => registered,
        Err(ended) => return finish(send, receive, Part::Ended(ended)).await,
    };
    deliver(&mut send, Part::Registered(Registered {})).await?;
    // Both at once: otherwise an entity and a service that both send much would wait for each other.
    select! {
        replaced = pass_on(&registration, &mut orders, &mut send) => {
            replaced?;
            let text = "this identity has registered again, which ends this registration";
            finish(send, receive, Part::Ended(Ended::new(Cause::Replaced, text))).await
        }
        left = hear(&registration, &mut receive) => {
            left?;
            Ok(send.finish().await?)
        }
    }
}

/// Tells the entity what it is asked, until another registration takes the place of this one.
async fn pass_on(
    registration: &Registration<'_>,
    orders: &mut Receiver<Order>,
    send: &mut SendHalf,
) -> Result<(), ServiceError> {
    while let Some(order) = orders.recv().await {
        if let Some(part) = told(registration, order) {
            deliver(send, part).await?;
        }
    }
    Ok(())
}

/// Takes what the entity says, until it leaves.
async fn hear(
    registration: &Registration<'_>,
    receive: &mut ReceiveHalf,
) -> Result<(), ServiceError> {
    while let Some(part) = mediation::receive(receive).await? {
        take(registration, part)?;
    }
    Ok(())
}

/// Takes what an entity says once it is registered.
fn take(registration: &Registration<'_>, part: Part) -> Result<(), ServiceError> {
    match part {
        Part::Answered(Answered { number, reply: Some(reply) }) => {
            registration.answer(number, reply);
        }
        Part::Register(register) => registration.renew(challenge(&register)?),
        _ => return Err(malformed()),
    }
    Ok(())
}

fn challenge(register: &Register) -> Result<[u8; 32], ServiceError> {
    register.challenge.as_slice().try_into().map_err(|_| malformed())
}

/// What the entity hears of an order; nothing of a question that was withdrawn before it left.
fn told(registration: &Registration<'_>, order: Order) -> Option<Part> {
    match order {
        Order::Ask(number) => {
            let question = Some(registration.question(number)?);
            Some(Part::Asked(Asked { number, question }))
        }
        Order::Withdraw(number) => Some(Part::Withdrawn(Withdrawn { number })),
    }
}
