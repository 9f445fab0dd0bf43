//! Who may request what: the node itself, the configuration, and what invitations opened.

use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use levada_core::Identity;

use crate::config::{Config, ConfigError};
use crate::overrides::Overrides;
use crate::store::Store;
use levada_client::known::Known;

/// The part of the policy that the configuration and the command line give; it can be read again
/// while the node runs.
pub struct Policy(ArcSwap<Lists>);

#[derive(Default)]
struct Lists {
    /// Identities with the services they may request; `None` stands for every service.
    allow: Vec<(Identity, Option<BTreeSet<String>>)>,
    block: BTreeSet<Identity>,
}

impl Policy {
    /// # Errors
    /// [`ConfigError`] names a name in the configuration that is not pinned here.
    pub(crate) fn new(
        config: &Config,
        overrides: &Overrides,
        known: &Known,
        store: &Store,
    ) -> Result<Self, ConfigError> {
        Ok(Self(ArcSwap::from_pointee(Lists::new(config, overrides, known, store)?)))
    }

    pub(crate) fn allows_any(&self, identity: &Identity) -> bool {
        self.0.load().allow.iter().any(|(allowed, _)| allowed == identity)
    }

    /// With `by_name`, an entry for every service does not count.
    pub(crate) fn allows(&self, identity: &Identity, service: &str, by_name: bool) -> bool {
        self.0.load().allow.iter().any(|(allowed, services)| {
            let listed = services.as_ref().map_or(!by_name, |set| set.contains(service));
            allowed == identity && listed
        })
    }

    /// Reads the lists of the configuration again, and returns the identities that are blocked now.
    ///
    /// # Errors
    /// [`ConfigError`] names a name that is not pinned here; nothing has changed then.
    pub(crate) fn reload(
        &self,
        config: &Config,
        overrides: &Overrides,
        known: &Known,
        store: &Store,
    ) -> Result<BTreeSet<Identity>, ConfigError> {
        let lists = Lists::new(config, overrides, known, store)?;
        let blocked = lists.block.clone();
        self.0.store(lists.into());
        Ok(blocked)
    }

    /// Whether the configuration says anything about `identity`.
    pub(crate) fn names(&self, identity: &Identity) -> bool {
        let lists = self.0.load();
        lists.block.contains(identity) || lists.allow.iter().any(|(allowed, _)| allowed == identity)
    }

    pub(crate) fn blocks(&self, identity: &Identity) -> bool {
        self.0.load().block.contains(identity)
    }
}

impl Lists {
    /// Names stand for the keys that are pinned under them now. A block holds for the keys that have taken the place of
    /// a blocked one, too: the owner may have read the old one in the log.
    fn new(
        config: &Config,
        overrides: &Overrides,
        known: &Known,
        store: &Store,
    ) -> Result<Self, ConfigError> {
        let mut allow: Vec<_> = overrides.allow.iter().map(|identity| (*identity, None)).collect();
        for entry in &config.allow {
            let services = entry.services.as_ref().map(|list| list.iter().cloned().collect());
            allow.push((entry.identity.identity(known)?, services));
        }
        let block = config.block.iter().map(|who| who.identity(known));
        let mut block: BTreeSet<Identity> = block.collect::<Result<_, _>>()?;
        let rotated = store.policy().map(|policy| policy.dead).unwrap_or_else(|error| {
            tracing::error!(%error, "could not read which keys were rotated");
            Vec::new()
        });
        while let Some((_, new)) =
            rotated.iter().find(|(old, new)| block.contains(old) && !block.contains(new))
        {
            block.insert(*new);
        }
        Ok(Self { allow, block })
    }
}
