//! Entities that are registered at a service, as the node asks them because of its rules.

use std::future::Future;
use std::pin::Pin;

use levada_core::Identity;
use levada_core::wire::{Ended, SealedReply, SignedQuestion};

/// The reply of an entity, or why there is none.
pub type EntityFuture<'a> = Pin<Box<dyn Future<Output = Result<SealedReply, Ended>> + Send + 'a>>;

/// The entities of a service.
pub trait Entities: Send + Sync {
    /// The challenge of the entity's registration; `None` if it is not registered.
    ///
    /// # Errors
    /// [`Ended`] if it cannot answer questions of a node.
    fn challenge(&self, entity: &Identity) -> Option<Result<[u8; 32], Ended>>;

    /// Passes a question of the node to its entity, and returns the reply. It counts as a question
    /// of its subject. Dropping the future withdraws the question.
    fn ask(&self, question: SignedQuestion) -> EntityFuture<'_>;
}
