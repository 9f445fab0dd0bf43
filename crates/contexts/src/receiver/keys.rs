//! The keys under which an endpoint opens and verifies the records of a context.

use std::sync::Arc;

use levada_core::Digest;

use crate::ContextError;
use crate::record::{Cipher, Head, View};
use crate::schedule::{Direction, EndpointKeys, TagKey};

/// The keys of a context.
pub(super) struct Keys {
    pub(super) cipher: Cipher,
    writer: Option<TagKey>,
    endpoint: Arc<TagKey>,
    /// By hop, from 0; those that have written something.
    authors: Vec<Option<Arc<TagKey>>>,
}

impl Keys {
    pub(super) fn new(keys: &EndpointKeys, context: u8, direction: Direction) -> Self {
        let of_context = keys.context(context);
        let endpoint = keys.secret.endpoint(context, direction, &keys.th2);
        Self {
            cipher: Cipher::new(of_context.record(context, direction), keys.aes),
            writer: of_context.writer(context, direction).as_ref().map(TagKey::new),
            endpoint: Arc::new(TagKey::new(&endpoint)),
            authors: vec![None; keys.hops.len() + 1],
        }
    }

    /// How many parties have keys here: the endpoint, and the middleboxes that have written
    /// something.
    pub(super) fn sets(&self) -> usize {
        1 + self.authors.iter().flatten().count()
    }

    /// The key of the endpoint, or of the middlebox that wrote the record last.
    pub(super) fn third(
        &mut self,
        keys: &EndpointKeys,
        head: Head,
        direction: Direction,
    ) -> Option<Arc<TagKey>> {
        if head.origin == 0 {
            return Some(self.endpoint.clone());
        }
        let slot = self.authors.get_mut(usize::from(head.origin))?;
        if slot.is_none() {
            let secret = keys.hop(head.origin)?.author(head.context, direction, &keys.th2)?;
            *slot = Some(Arc::new(TagKey::new(&secret)));
        }
        slot.clone()
    }

    /// The writer tag, and the third.
    pub(super) fn verify(
        &self,
        view: &View,
        whole: &[u8],
        hash: &Digest,
        third: Option<&Arc<TagKey>>,
    ) -> Result<(), ContextError> {
        let Head { context, origin, .. } = view.head;
        let forged =
            |what| ContextError::Forged { what, hop: Some(origin), context: Some(context) };
        let message = view.tagged(hash);
        if let Some(tag) = view.writer_tag(whole)
            && !self.writer.as_ref().is_some_and(|key| key.verify(&message, tag))
        {
            return Err(forged("a record, by a party that may not write"));
        }
        if let Some(tag) = view.third_tag(whole)
            && !third.is_some_and(|key| key.verify(&message, tag))
        {
            return Err(forged("a record, by another writer"));
        }
        Ok(())
    }
}
