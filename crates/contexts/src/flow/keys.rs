//! The keys of the records of a context at a middlebox.

use levada_core::Digest;

use crate::record::Cipher;
use crate::schedule::{ContextKeys, Direction, HopSecrets, TagKey};

/// The keys of a context, as far as a middlebox has them.
pub(super) struct Keys {
    /// None without the right to read.
    pub(super) given: Option<ContextKeys>,
    /// Derived from `given` with the first record.
    derived: Option<Derived>,
}

/// The keys of records.
pub(super) struct Derived {
    /// For opening and, with a state of its own, for sealing.
    pub(super) open: Cipher,
    pub(super) seal: Cipher,
    /// With the right to write.
    pub(super) writer: Option<TagKey>,
    pub(super) author: Option<TagKey>,
}

impl Keys {
    pub(super) fn new(given: Option<ContextKeys>) -> Self {
        Self { given, derived: None }
    }

    /// The keys of records; None without the right to read.
    pub(super) fn derive(
        &mut self,
        secrets: &Secrets,
        number: u8,
        direction: Direction,
    ) -> Option<&mut Derived> {
        let given = self.given.as_ref()?;
        let derive = || {
            let secret = given.record(number, direction);
            let author = secrets.hop.author(number, direction, &secrets.th2);
            Derived {
                open: Cipher::new(secret.clone(), secrets.aes),
                seal: Cipher::new(secret, secrets.aes),
                writer: given.writer(number, direction).as_ref().map(TagKey::new),
                author: author.filter(|_| given.write.is_some()).as_ref().map(TagKey::new),
            }
        };
        Some(self.derived.get_or_insert_with(derive))
    }
}

/// What keys are derived from, besides those of contexts.
pub(super) struct Secrets {
    pub(super) hop: HopSecrets,
    pub(super) th2: Digest,
    pub(super) aes: bool,
}
