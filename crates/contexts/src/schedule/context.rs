//! The keys of one context.

use levada_core::{Digest, label::derive};

use super::direction::Direction;
use super::secret::{Secret, extract};

/// The keys of a context.
#[derive(Clone)]
pub(crate) struct ContextKeys {
    /// R.
    pub(crate) read: Secret,
    /// W, at those who may write.
    pub(crate) write: Option<Secret>,
}

impl ContextKeys {
    /// From the write halves of both endpoints.
    pub(crate) fn from_halves(client: &Secret, server: &Secret, th2: &Digest) -> Self {
        let read = [client, server].map(|half| half.derive(derive::READ, &[]));
        let mut keys = Self::from_read_halves(&read[0], &read[1], th2);
        keys.write = Some(extract(th2, client, server));
        keys
    }

    /// From what both endpoints give to readers.
    pub(crate) fn from_read_halves(client: &Secret, server: &Secret, th2: &Digest) -> Self {
        Self { read: extract(th2, client, server), write: None }
    }

    /// T_0 of a direction.
    pub(crate) fn record(&self, context: u8, direction: Direction) -> Secret {
        self.read.derive(derive::RECORD, &[&[context, direction as u8]])
    }

    /// The key of writer tags.
    pub(crate) fn writer(&self, context: u8, direction: Direction) -> Option<Secret> {
        Some(self.write.as_ref()?.derive(derive::WRITER, &[&[context, direction as u8]]))
    }
}
