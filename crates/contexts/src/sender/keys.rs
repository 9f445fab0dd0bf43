//! The keys under which an endpoint seals the records of a context.

use crate::record::{Cipher, SealKeys};
use crate::schedule::{Direction, EndpointKeys, TagKey};

/// The keys of a context.
pub(super) struct Keys {
    cipher: Cipher,
    writer: Option<TagKey>,
    endpoint: TagKey,
}

impl Keys {
    pub(super) fn new(keys: &EndpointKeys, context: u8, direction: Direction) -> Self {
        let of_context = keys.context(context);
        Self {
            cipher: Cipher::new(of_context.record(context, direction), keys.aes),
            writer: of_context.writer(context, direction).as_ref().map(TagKey::new),
            endpoint: TagKey::new(&keys.secret.endpoint(context, direction, &keys.th2)),
        }
    }

    pub(super) fn seal_keys(&mut self) -> SealKeys<'_> {
        SealKeys {
            cipher: &mut self.cipher,
            writer: self.writer.as_ref(),
            third: Some(&self.endpoint),
        }
    }
}
