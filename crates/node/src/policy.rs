//! Rights and blocks of the configuration and the command line.

use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use levada_core::Identity;

use crate::overrides::Overrides;
use crate::store::Store;
use levada_config::{Config, ConfigError};
use levada_home::known::Known;

/// The allow-list and blocks of the configuration and the command line, which can be read again
/// while the node runs. Those of invitations are in the store.
pub struct Policy(ArcSwap<Lists>);

#[derive(Default)]
struct Lists {
    allow: Vec<ConfiguredRight>,
    block: BTreeSet<Identity>,
}

/// A right of the configuration or the command line.
#[derive(Clone, Debug)]
pub(crate) struct ConfiguredRight {
    pub(crate) identity: Identity,
    /// The services; `None` for every service.
    pub(crate) services: Option<BTreeSet<String>>,
    /// Its place in the configuration; `None` for the command line.
    pub(crate) place: Option<String>,
}

impl Policy {
    /// Reads the lists of the configuration.
    ///
    /// # Errors
    /// [`ConfigError`] for a name in the configuration that is not pinned here.
    pub(crate) fn new(
        config: &Config,
        overrides: &Overrides,
        known: &Known,
        store: &Store,
    ) -> Result<Self, ConfigError> {
        Ok(Self(ArcSwap::from_pointee(Lists::new(config, overrides, known, store)?)))
    }

    pub(crate) fn allows_any(&self, identity: &Identity) -> bool {
        self.0.load().allow.iter().any(|right| right.identity == *identity)
    }

    /// Whether `identity` may request `service`. With `by_name`, an entry for every service does
    /// not count.
    pub(crate) fn allows(&self, identity: &Identity, service: &str, by_name: bool) -> bool {
        self.0.load().allow.iter().any(|right| {
            let listed = right.services.as_ref().map_or(!by_name, |set| set.contains(service));
            right.identity == *identity && listed
        })
    }

    /// The rights, in the order of the command line and then the configuration.
    pub(crate) fn rights(&self) -> Vec<ConfiguredRight> {
        self.0.load().allow.clone()
    }

    /// The blocked identities.
    pub(crate) fn blocked(&self) -> BTreeSet<Identity> {
        self.0.load().block.clone()
    }

    /// Reads the lists of the configuration again, and returns the blocked identities.
    ///
    /// # Errors
    /// [`ConfigError`] for a name that is not pinned here; nothing has changed.
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

    /// Whether the configuration allows or blocks `identity`.
    pub(crate) fn names(&self, identity: &Identity) -> bool {
        let lists = self.0.load();
        lists.block.contains(identity)
            || lists.allow.iter().any(|right| right.identity == *identity)
    }

    pub(crate) fn blocks(&self, identity: &Identity) -> bool {
        self.0.load().block.contains(identity)
    }
}

impl Lists {
    /// Resolves names to the keys that are pinned now. A block of a rotated key includes its
    /// successors, because the owner may have copied the old key from the log.
    fn new(
        config: &Config,
        overrides: &Overrides,
        known: &Known,
        store: &Store,
    ) -> Result<Self, ConfigError> {
        let option = |identity: &Identity| ConfiguredRight {
            identity: *identity,
            services: None,
            place: None,
        };
        let mut allow: Vec<_> = overrides.allow.iter().map(option).collect();
        for entry in &config.allow {
            allow.push(ConfiguredRight {
                identity: entry.identity.identity(known)?,
                services: entry.services.as_ref().map(|list| list.iter().cloned().collect()),
                place: Some(entry.identity.place()),
            });
        }
        let block = config.block.iter().map(|entry| entry.identity(known));
        let mut block: BTreeSet<Identity> = block.collect::<Result<_, _>>()?;
        let rotations = store.rotations().unwrap_or_else(|error| {
            tracing::error!(%error, "could not read the rotated keys");
            Vec::new()
        });
        while let Some((_, new)) =
            rotations.iter().find(|(old, new)| block.contains(old) && !block.contains(new))
        {
            block.insert(*new);
        }
        Ok(Self { allow, block })
    }
}
