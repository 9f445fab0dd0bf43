//! The identities that a rule concerns.

use std::collections::BTreeSet;

use levada_core::Identity;
use levada_home::known::Known;

use crate::reader::Value;
use crate::{ConfigError, IdentityRef};

/// Stands for every identity.
const ANY: &str = "*";

/// `requesters` of a rule as it is written.
#[derive(Clone, Debug)]
pub(super) struct RequestersSource {
    any: bool,
    named: Vec<IdentityRef>,
}

/// The identities that a rule concerns.
#[derive(Clone, Debug)]
pub(super) struct Requesters {
    any: bool,
    named: BTreeSet<Identity>,
}

impl RequestersSource {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        let entries = value.each(|value| match value.as_text() {
            Some(ANY) => Ok(None),
            _ => IdentityRef::read(value).map(Some),
        })?;
        if entries.is_empty() {
            return Err(value.wrong("it needs at least one entry; \"*\" is every identity"));
        }
        let any = entries.contains(&None);
        Ok(Self { any, named: entries.into_iter().flatten().collect() })
    }

    /// Resolves names to the keys that are pinned now.
    pub(super) fn resolve(&self, known: &Known) -> Result<Requesters, ConfigError> {
        let named = self.named.iter().map(|entry| entry.identity(known));
        Ok(Requesters { any: self.any, named: named.collect::<Result<_, _>>()? })
    }
}

impl Requesters {
    pub(super) fn concern(&self, identity: &Identity) -> bool {
        self.any || self.named.contains(identity)
    }

    /// The identities; `None` stands for every identity.
    pub(super) fn all(&self) -> impl Iterator<Item = Option<Identity>> {
        self.any.then_some(None).into_iter().chain(self.named.iter().copied().map(Some))
    }

    /// Returns true if `identity` is written there, not only `*`.
    pub(super) fn names(&self, identity: &Identity) -> bool {
        self.named.contains(identity)
    }

    /// Adds the successors of the keys that are written there. Returns true if there are any.
    pub(super) fn follow(&mut self, rotations: &[(Identity, Identity)]) -> bool {
        let before = self.named.len();
        let missing = |named: &BTreeSet<Identity>, (old, new): &(Identity, Identity)| {
            named.contains(old) && !named.contains(new)
        };
        while let Some((_, new)) = rotations.iter().find(|pair| missing(&self.named, pair)) {
            self.named.insert(*new);
        }
        self.named.len() > before
    }
}
