//! The lists of the configuration and the command line, with names resolved to keys.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use levada_config::{Config, ConfigError, GroupDefinition, GroupSource, Member, Rules, Subject};
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
    /// The blocks with their places.
    pub(super) block: Vec<(Listed, Arc<str>)>,
    pub(super) readers: Vec<Listed>,
    /// The rules, whose groups have no members here.
    pub(super) rules: Rules,
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
        let block = |subject: &Subject| {
            Ok::<_, ConfigError>((listed(subject, known)?, subject.place().into()))
        };
        let readers = shared.readers.iter().map(|subject| listed(subject, known));
        let group = |source: &GroupSource| {
            Ok::<_, ConfigError>((source.definition(known)?, source.clone()))
        };
        Ok(Self {
            allow,
            block: config.block.iter().map(block).collect::<Result<_, _>>()?,
            readers: readers.collect::<Result<_, _>>()?,
            rules: Rules::resolve(&config.rules, known)?,
            groups: config.groups.iter().map(group).collect::<Result<_, _>>()?,
            from: shared.from.as_ref().map(|from| from.identity(known)).transpose()?,
            set: shared.set.clone().unwrap_or_else(|| DEFAULT_SET.to_owned()),
            named: named(config, known)?,
        })
    }

    /// Replaces the rotated keys that stand for names by their successors. In `block`, the old keys
    /// stay: the lists add their successors.
    pub(super) fn follow(&mut self, rotations: &HashMap<Identity, Identity>) {
        let Self { allow, readers, rules, groups, named, .. } = self;
        let latest = |identity: Identity| match named.contains(&identity) {
            true => successor(identity, rotations),
            false => identity,
        };
        let follow = |identity: &mut Identity| *identity = latest(*identity);
        rules.follow_names(latest);
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
        self.uses().find(|subject| subject.group() == Some(group)).map(Subject::place)
    }

    /// The groups to which the configuration refers, each with its place.
    pub(crate) fn uses(&self) -> impl Iterator<Item = &Subject> {
        let lists = self.allow.iter().map(|entry| &entry.whom);
        let lists = lists.chain(self.block.iter().map(|(listed, _)| listed)).chain(&self.readers);
        let lists = lists.filter_map(|listed| match listed {
            Listed::Group(subject) => Some(subject),
            Listed::Identity(_) => None,
        });
        let members = self.groups.iter().flat_map(|(_, source)| &source.members);
        lists.chain(members).chain(self.rules.groups())
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
    let identities = all.filter_map(|subject| match subject {
        Subject::Identity(identity) => Some(identity),
        Subject::Group(_) => None,
    });
    let of_rules = config.rules.iter().flat_map(|rule| rule.identities());
    let names = identities.chain(of_rules).filter(|identity| identity.is_name());
    names.map(|identity| identity.identity(known)).collect()
}
