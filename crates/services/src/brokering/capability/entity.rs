//! The session of an entity, which registers, receives questions, and replies.

use levada_core::Identity;
use levada_core::wire::{
    Answered, Asked, Cause, Ended, Register, Registered, Withdrawn, mediation::Part,
};
use levada_service::ServiceError;
use levada_session::{ReceiveHalf, SendHalf};
use tokio::select;
use tokio::sync::mpsc::Receiver;

use super::messages::{deliver, expect, finish, malformed};
use super::pending::{Notice, PendingRequests, Registration};
use crate::brokering::mediation;

/// Serves an entity until it disconnects. Dropping the future removes its registration.
pub(super) async fn serve(
    pending: &PendingRequests,
    entity: Identity,
    mut send: SendHalf,
    mut receive: ReceiveHalf,
) -> Result<(), ServiceError> {
    let Part::Register(register) = expect(&mut receive).await? else { return Err(malformed()) };
    let registered = pending.register(entity, challenge(&register)?, register.answers_node);
    let (registration, mut notices) = match registered {
        Ok(registered) => registered,
        Err(ended) => return finish(send, receive, Part::Ended(ended)).await,
    };
    deliver(&mut send, Part::Registered(Registered {})).await?;
    // Both at the same time: otherwise an entity and a service that both send large messages would
    // block each other.
    select! {
        replaced = send_questions(&registration, &mut notices, &mut send) => {
            replaced?;
            let text = "this identity has registered again, which ends this registration";
            finish(send, receive, Part::Ended(Ended::new(Cause::Replaced, text))).await
        }
        finished = receive_replies(&registration, &mut receive) => {
            finished?;
            Ok(send.finish().await?)
        }
    }
}

/// Sends the entity its questions and their withdrawals, until another registration replaces this
/// one.
async fn send_questions(
    registration: &Registration<'_>,
    notices: &mut Receiver<Notice>,
    send: &mut SendHalf,
) -> Result<(), ServiceError> {
    while let Some(notice) = notices.recv().await {
        if let Some(part) = message(registration, notice) {
            deliver(send, part).await?;
        }
    }
    Ok(())
}

/// Receives the entity's replies and new challenges, until it finishes.
async fn receive_replies(
    registration: &Registration<'_>,
    receive: &mut ReceiveHalf,
) -> Result<(), ServiceError> {
    while let Some(part) = mediation::receive(receive).await? {
        handle(registration, part)?;
    }
    Ok(())
}

/// Handles one message of a registered entity.
fn handle(registration: &Registration<'_>, part: Part) -> Result<(), ServiceError> {
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

/// The message for a notice; `None` for a question that was withdrawn before it was sent.
fn message(registration: &Registration<'_>, notice: Notice) -> Option<Part> {
    match notice {
        Notice::Ask(number) => {
            let question = Some(registration.question(number)?);
            Some(Part::Asked(Asked { number, question }))
        }
        Notice::Withdraw(number) => Some(Part::Withdrawn(Withdrawn { number })),
    }
}
