//! The session of a requester: one question, one reply.

use std::time::Duration;

use levada_capability::exchange::Question;
use levada_core::Identity;
use levada_core::wire::{
    Answered, Asked, Cause, Ended, Found, SealedReply, SignedQuestion, mediation::Part,
};
use levada_service::ServiceError;
use levada_session::{ReceiveHalf, SendHalf};
use tokio::select;
use tokio::time::sleep;

use super::messages::{deliver, expect, finish, malformed};
use super::pending::{PendingRequests, away};
use crate::brokering::mediation;

/// How long a question may wait for its reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3600);

/// Serves a requester until its reply. Dropping the future withdraws its question.
pub(super) async fn serve(
    pending: &PendingRequests,
    node: Identity,
    requester: Identity,
    mut send: SendHalf,
    mut receive: ReceiveHalf,
) -> Result<(), ServiceError> {
    let Part::Seek(seek) = expect(&mut receive).await? else { return Err(malformed()) };
    let entity = Identity::try_from(seek.entity.as_slice()).map_err(|_| malformed())?;
    let challenge = match pending.challenge(&entity) {
        Ok(challenge) => challenge.to_vec(),
        Err(ended) => return finish(send, receive, Part::Ended(ended)).await,
    };
    deliver(&mut send, Part::Found(Found { challenge })).await?;
    let Part::Asked(Asked { question: Some(signed), .. }) = expect(&mut receive).await? else {
        return Err(malformed());
    };
    let last = match check(&signed, node, requester, entity) {
        Err(ended) => Err(ended),
        Ok(question) => wait(pending, &question, signed, &mut receive).await?,
    };
    let last = match last {
        Ok(reply) => Part::Answered(Answered { number: 0, reply: Some(reply) }),
        Err(ended) => Part::Ended(ended),
    };
    finish(send, receive, last).await
}

/// Refuses questions that the entity would refuse: a question must be signed by its requester, and
/// name this service and this entity.
fn check(
    signed: &SignedQuestion,
    node: Identity,
    requester: Identity,
    entity: Identity,
) -> Result<Question, Ended> {
    let wrong = |text: &str| Ended::new(Cause::Malformed, text);
    let question = Question::verify(signed).map_err(|error| wrong(&error.to_string()))?;
    if question.subject.is_some() {
        return Err(wrong("only a node asks for others, and not in a session"));
    }
    if question.requester != requester {
        return Err(wrong("the question is another requester's"));
    }
    if question.route.entity != entity || question.route.via != node {
        return Err(wrong("the question is for another entity, or for another service"));
    }
    Ok(question)
}

/// Waits for the reply; the outer error ends the session without a message.
async fn wait(
    pending: &PendingRequests,
    question: &Question,
    signed: SignedQuestion,
    receive: &mut ReceiveHalf,
) -> Result<Result<SealedReply, Ended>, ServiceError> {
    let (_guard, reply) = match pending.ask(question, signed) {
        Ok(asked) => asked,
        Err(ended) => return Ok(Err(ended)),
    };
    select! {
        reply = reply => {
            Ok(reply.map_err(|_| away("the entity went away before it replied")))
        }
        // The requester may only finish, which withdraws the question.
        part = mediation::receive(receive) => match part? {
            Some(_) => Err(malformed()),
            None => Err(ServiceError::Gone),
        },
        () = sleep(REPLY_TIMEOUT) => {
            Ok(Err(Ended::new(Cause::Late, "the entity did not reply within an hour")))
        }
    }
}
