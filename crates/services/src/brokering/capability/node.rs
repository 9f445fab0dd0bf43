//! Questions of the node itself, which a rule of its configuration asks.

use levada_capability::exchange::Question;
use levada_core::Identity;
use levada_core::wire::{Cause, Ended, SealedReply, SignedQuestion};
use levada_service::{Entities, EntityFuture};

use super::pending::{PendingRequests, away};

impl Entities for PendingRequests {
    fn challenge(&self, entity: &Identity) -> Option<Result<[u8; 32], Ended>> {
        self.challenge_for_node(entity)
    }

    fn ask(&self, signed: SignedQuestion) -> EntityFuture<'_> {
        Box::pin(async move { ask(self, signed).await })
    }
}

/// Waits for the reply. Dropping the future withdraws the question.
async fn ask(pending: &PendingRequests, signed: SignedQuestion) -> Result<SealedReply, Ended> {
    let question = Question::verify(&signed)
        .map_err(|error| Ended::new(Cause::Malformed, error.to_string()))?;
    let (_guard, reply) = pending.ask(&question, signed)?;
    reply.await.map_err(|_| away("it went away before it replied"))
}
