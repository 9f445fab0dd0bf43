//! Answers with the sets of groups that this node signs.

use std::sync::Arc;

use levada_core::MAX_NAME;
use levada_core::printable::one_line;
use levada_core::wire::{self, Reason, Refusal, answer::Answer};

use super::context::{OperationResult, RequestContext};
use super::refusal::{denied, failed};

impl RequestContext {
    /// Returns a signed set to an identity in `readers` of `[groups]`. A set with changed groups is
    /// signed first.
    pub(super) async fn read_groups(self: &Arc<Self>, read: wire::ReadGroups) -> OperationResult {
        let is_own = self.peer == self.node.identity();
        if !is_own && !self.node.rights.policy.is_reader(&self.peer) {
            return Err(denied(
                "this identity may not read groups here; `readers` of [groups] in the \
                 configuration of the node allows it",
            ));
        }
        let name = one_line(&read.set, MAX_NAME);
        let export =
            self.on_store(move |context, store| context.node.current_export(store, &read.set));
        match export.await.map_err(|error| failed(&error))? {
            Some(export) => Ok(Answer::Groups(wire::SignedGroups { text: export.text })),
            None => {
                let text = format!(
                    "this node has signed no groups `{name}`; its owner does it by `levada group \
                     export`"
                );
                Err(Refusal::new(Reason::Unknown, text))
            }
        }
    }
}
