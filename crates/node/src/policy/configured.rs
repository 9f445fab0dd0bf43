//! The lists of the configuration and the command line, with names resolved to keys.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use levada_config::{Config, ConfigError, GroupDefinition, GroupSource, Member, Subject};
use levada_core::Identity;
use levada_home::known::Known;

use super::shared::DEFAULT_SET;
use crate::overrides::Overrides;

/// An entry of `allow`.
#[derive(Clone)]
pub(super) struct Allowed {
    pub(super) whom: Listed,
    /// The services; `None` for every service.
    pub(super) services: Option<Arc<BTreeSet<String>>>,
    /// Its place in the configuration; `None` for the command line.
    pub(super) place: Option<Arc<str>>,
}

/// An identity, or a group by its place.
#[derive(Clone)]
pub(super) enum Listed {
    Identity(Identity),
    Group(Subject),
}

/// The entries of the configuration and the command line about identities and groups.
#[derive(Clone)]
pub(crate) struct Configured {
    pub(super) allow: Vec<Allowed>,
    pub(super) block: Vec<Listed>,
    pub(super) readers: Vec<Listed>,
    /// The groups with their places.
    pub(crate) groups: Vec<(GroupDefinition, GroupSource)>,
    /// The identity that signs the groups that the node takes over.
    pub(crate) from: Option<Identity>,
    /// The name of the set that it takes over.
    pub(crate) set: String,
    /// The keys that stand for pinned names, and follow their rotations as the pins do.
    named: BTreeSet<Identity>,
}

impl Configured {
    /// Resolves names to the keys that are pinned now.
    ///
    /// # Errors
    /// [`ConfigError`] for a name that is not pinned.
    pub(crate) fn new(
        config: &Config,
        overrides: &Overrides,
        known: &Known,
    ) -> Result<Self, ConfigError> {
        let option = |identity: &Identity| Allowed {
            whom: Listed::Identity(*identity),
            services: None,
            place: None,
        };
        let mut allow: Vec<_> = overrides.allow.iter().map(option).collect();
        for entry in &config.allow {
            let services = entry.services.as_ref().map(|list| list.iter().cloned().collect());
            allow.push(Allowed {
                whom: listed(&entry.identity, known)?,
                services: services.map(Arc::new),
                place: Some(entry.identity.place().into()),
            });
        }
        let shared = &config.shared_groups;
        let all = |subjects: &[Subject]| {
            subjects.iter().map(|subject| listed(subject, known)).collect::<Result<Vec<_>, _>>()
        };
        let group = |source: &GroupSource| {
            Ok::<_, ConfigError>((source.definition(known)?, source.clone()))
        };
        Ok(Self {
            allow,
            block: all(&config.block)?,
            readers: all(&shared.readers)?,
            groups: config.groups.iter().map(group).collect::<Result<_, _>>()?,
            from: shared.from.as_ref().map(|from| from.identity(known)).transpose()?,
            set: shared.set.clone().unwrap_or_else(|| DEFAULT_SET.to_owned()),
            named: named(config, known)?,
        })
    }

    /// Replaces the rotated keys that stand for names by their successors. In `block`, the old keys
    /// stay: the lists add their successors.
    pub(super) fn follow(&mut self, rotations: &HashMap<Identity, Identity>) {
        let Self { allow, readers, groups, named, .. } = self;
        let follow = |identity: &mut Identity| {
            if named.contains(identity) {
                *identity = successor(*identity, rotations);
            }
        };
        for listed in allow.iter_mut().map(|entry| &mut entry.whom).chain(readers) {
            if let Listed::Identity(identity) = listed {
                follow(identity);
            }
        }
        for member in groups.iter_mut().flat_map(|(group, _)| &mut group.members) {
            if let Member::Identity(identity) = member {
                follow(identity);
            }
        }
        let successors = named.iter().map(|identity| successor(*identity, rotations));
        *named = successors.collect();
    }

    /// The first place where the configuration refers to a group.
    pub(crate) fn place_of_use(&self, group: &str) -> Option<String> {
        let lists = self.allow.iter().map(|entry| &entry.whom).chain(&self.block);
        let lists = lists.chain(&self.readers).filter_map(|listed| match listed {
            Listed::Group(subject) => Some(subject),
            Listed::Identity(_) => None,
        });
        let members = self.groups.iter().flat_map(|(_, source)| &source.members);
        let mut all = lists.chain(members);
        all.find(|subject| subject.group() == Some(group)).map(Subject::place)
    }
}

/// The last successor of a key.
pub(super) fn successor(key: Identity, rotations: &HashMap<Identity, Identity>) -> Identity {
    let mut key = key;
    // Bounded, because the rotations of two databases together may have a cycle.
    for _ in 0..rotations.len() {
        let Some(next) = rotations.get(&key) else { break };
        key = *next;
    }
    key
}

fn listed(subject: &Subject, known: &Known) -> Result<Listed, ConfigError> {
    match subject {
        Subject::Identity(identity) => identity.identity(known).map(Listed::Identity),
        Subject::Group(_) => Ok(Listed::Group(subject.clone())),
    }
}

/// The keys that stand for pinned names.
fn named(config: &Config, known: &Known) -> Result<BTreeSet<Identity>, ConfigError> {
    let allow = config.allow.iter().map(|entry| &entry.identity);
    let members = config.groups.iter().flat_map(|group| &group.members);
    let all = allow.chain(&config.shared_groups.readers).chain(members);
    let names = all.filter_map(|subject| match subject {
        Subject::Identity(identity) if identity.is_name() => Some(identity.identity(known)),
        _ => None,
    });
    names.collect()
}
