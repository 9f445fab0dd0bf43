//! A context at a middlebox, and the keys of its records.

use levada_core::Digest;

use crate::record::{Cipher, Layout};
use crate::schedule::{ContextKeys, Direction, HopSecrets, TagKey};

pub(super) struct Context {
    pub(super) layout: Layout,
    pub(super) slots: u64,
    /// None without the right to read.
    pub(super) given: Option<ContextKeys>,
    /// Derived from `given` with the first record.
    pub(super) keys: Option<Keys>,
    /// The current exchange has records here…
    pub(super) begun: bool,
    /// …and the last one.
    pub(super) ended: bool,
}

pub(super) struct Keys {
    /// For opening and, with a state of its own, for sealing.
    pub(super) open: Cipher,
    pub(super) seal: Cipher,
    /// With the right to write.
    pub(super) writer: Option<TagKey>,
    pub(super) author: Option<TagKey>,
}

impl Context {
    /// The keys; None without the right to read.
    pub(super) fn keys(
        &mut self,
        secrets: &Secrets,
        number: u8,
        direction: Direction,
    ) -> Option<&mut Keys> {
        let given = self.given.as_ref()?;
        let derive = || {
            let secret = given.record(number, direction);
            let author = secrets.hop.author(number, direction, &secrets.th2);
            Keys {
                open: Cipher::new(secret.clone(), secrets.aes),
                seal: Cipher::new(secret, secrets.aes),
                writer: given.writer(number, direction).as_ref().map(TagKey::new),
                author: author.filter(|_| given.write.is_some()).as_ref().map(TagKey::new),
            }
        };
        Some(self.keys.get_or_insert_with(derive))
    }
}

/// What keys are derived from, besides those of contexts.
pub(super) struct Secrets {
    pub(super) hop: HopSecrets,
    pub(super) th2: Digest,
    pub(super) aes: bool,
}
