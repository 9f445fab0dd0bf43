//! The sets of identities that follow from the configuration and the groups, for checks at each
//! request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use levada_config::{
    ConfigError, GroupDefinition, GroupError, Groups, Member, Rules, add_successors,
};
use levada_core::{Identity, UnixTime};
use thiserror::Error;

use super::configured::{Listed, successor};
use super::inputs::Inputs;
use super::right::{ListedRight, Origin};

/// The maximum number of rights, of which each member of a group has its own.
const MAX_RIGHTS: usize = 100_000;

/// The reason why lists are not valid.
#[derive(Debug, Error)]
pub(crate) enum PolicyError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error("the lists have more than {} rights, of which each member has its own", MAX_RIGHTS)]
    TooManyRights,
}

/// The lists.
#[derive(Default)]
pub(crate) struct Lists {
    /// The rights: of the command line, the configuration, and then of groups in the store.
    pub(crate) rights: Vec<ListedRight>,
    /// The positions in `rights` for each identity.
    by_identity: HashMap<Identity, Vec<usize>>,
    /// The blocked identities, with the places of their blocks in the configuration.
    pub(crate) block: BTreeMap<Identity, Arc<str>>,
    pub(crate) readers: BTreeSet<Identity>,
    /// The identity that signs the groups of another node.
    signer: Option<Identity>,
    pub(crate) groups: Groups,
    /// The rules, with the members of their groups.
    pub(crate) rules: Rules,
    /// Rotated keys with their successors.
    rotations: HashMap<Identity, Identity>,
}

impl Lists {
    /// # Errors
    /// [`PolicyError`] for a group with a cycle, beyond a limit, of a name that two have, or that
    /// does not exist.
    pub(crate) fn new(inputs: &Inputs) -> Result<Self, PolicyError> {
        let Inputs { configured, rotations, .. } = inputs;
        let groups = expand(inputs)?;
        let mut lists = Self { groups, signer: configured.from, ..Self::default() };
        for entry in &configured.allow {
            let origin = match &entry.place {
                Some(place) => Origin::Configuration(place.clone()),
                None => Origin::CommandLine,
            };
            let template = (entry.services.clone(), origin, UnixTime::NEVER);
            lists.allow(&entry.whom, &template)?;
        }
        for right in &inputs.rights {
            let services = right.service.iter().cloned().collect::<BTreeSet<_>>();
            let services = right.service.is_some().then(|| Arc::new(services));
            lists.allow_group(&right.group, &(services, Origin::Owner, right.expires))?;
        }
        lists.readers = lists.all(&configured.readers)?;
        for (listed, place) in &configured.block {
            let blocked = lists.all([listed])?;
            lists.block.extend(blocked.into_iter().map(|identity| (identity, place.clone())));
        }
        // A block of a rotated key includes its successors, because the owner may have copied the
        // old key from the log.
        lists.rotations = rotations.iter().copied().collect();
        add_successors(&mut lists.block, &lists.rotations);
        lists.rules = configured.rules.expanded(&lists.groups)?;
        lists.rules.follow(&lists.rotations);
        Ok(lists)
    }

    /// As [`Self::allows_any`], also if what gives it has expired.
    pub(crate) fn has_any(&self, identity: &Identity) -> bool {
        self.allows_any(identity, UnixTime(0))
    }

    /// Returns true if an entry, a group or a rule gives `identity` a right by its name.
    pub(crate) fn allows_any(&self, identity: &Identity, now: UnixTime) -> bool {
        self.of(identity).any(|right| right.is_valid(now)) || self.rules.may_give_to(identity, now)
    }

    /// The rights of an identity.
    pub(crate) fn of(&self, identity: &Identity) -> impl Iterator<Item = &ListedRight> {
        let positions = self.by_identity.get(identity).map(Vec::as_slice).unwrap_or_default();
        positions.iter().filter_map(|position| self.rights.get(*position))
    }

    /// Returns true if one of these keys has succeeded the other, or if they are the same.
    pub(crate) fn are_of_one(&self, one: Identity, other: Identity) -> bool {
        successor(one, &self.rotations) == successor(other, &self.rotations)
    }

    /// Returns true if a list, a group or a rule has `identity`, or if it signs groups.
    pub(super) fn name(&self, identity: &Identity) -> bool {
        self.block.contains_key(identity)
            || self.readers.contains(identity)
            || self.signer == Some(*identity)
            || self.by_identity.contains_key(identity)
            || self.groups.contain(identity)
            || self.rules.name(identity)
    }

    fn allow(
        &mut self,
        whom: &Listed,
        template: &(Option<Arc<BTreeSet<String>>>, Origin, UnixTime),
    ) -> Result<(), PolicyError> {
        match whom {
            Listed::Identity(identity) => self.add(*identity, None, UnixTime::NEVER, template),
            Listed::Group(subject) => {
                let name = subject.group().unwrap_or_default();
                self.check_exists(whom)?;
                let allowed = self.allow_group(name, template);
                allowed.map_err(|error| subject.wrong(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Adds a right for each member of a group, unless they would be too many: that is known before
    /// the first is added.
    fn allow_group(
        &mut self,
        name: &str,
        template: &(Option<Arc<BTreeSet<String>>>, Origin, UnixTime),
    ) -> Result<(), PolicyError> {
        let Some(members) = self.groups.members(name) else { return Ok(()) };
        if self.rights.len() + members.len() > MAX_RIGHTS {
            return Err(PolicyError::TooManyRights);
        }
        let members = members.clone();
        let group: Arc<str> = name.into();
        for (identity, until) in members {
            self.add(identity, Some(group.clone()), until, template);
        }
        Ok(())
    }

    fn add(
        &mut self,
        identity: Identity,
        group: Option<Arc<str>>,
        member_until: UnixTime,
        (services, origin, expires): &(Option<Arc<BTreeSet<String>>>, Origin, UnixTime),
    ) {
        self.by_identity.entry(identity).or_default().push(self.rights.len());
        let services = services.clone();
        let origin = origin.clone();
        let expires = *expires;
        self.rights.push(ListedRight { identity, services, origin, group, expires, member_until });
    }

    /// The identities of a list; the members of groups also after their expiry.
    fn all<'a>(
        &self,
        list: impl IntoIterator<Item = &'a Listed>,
    ) -> Result<BTreeSet<Identity>, PolicyError> {
        let mut all = BTreeSet::new();
        for listed in list {
            self.check_exists(listed)?;
            match listed {
                Listed::Identity(identity) => drop(all.insert(*identity)),
                Listed::Group(subject) => {
                    let members = self.groups.members(subject.group().unwrap_or_default());
                    all.extend(members.into_iter().flat_map(|members| members.keys()));
                }
            }
        }
        Ok(all)
    }

    /// Refuses a group that does not exist, unless another node may define it.
    fn check_exists(&self, listed: &Listed) -> Result<(), PolicyError> {
        let Listed::Group(subject) = listed else { return Ok(()) };
        match self.groups.members_or_none(subject.group().unwrap_or_default()) {
            Some(_) => Ok(()),
            None => Err(subject.unknown_group().into()),
        }
    }
}

/// The groups of the configuration, the store and the other node, with all of their members. Those
/// of this node take precedence.
fn expand(inputs: &Inputs) -> Result<Groups, PolicyError> {
    let Inputs { configured, groups, shared, .. } = inputs;
    let mut all: Vec<GroupDefinition> = Vec::new();
    for (definition, source) in &configured.groups {
        if groups.iter().any(|group| group.name == definition.name) {
            let name = &definition.name;
            let text = format!(
                "the node keeps a group `{name}` already, which `levada group` changes: rename \
                 this one, or remove that one by `levada group remove {name}` first"
            );
            return Err(source.wrong(text).into());
        }
        all.push(definition.clone());
    }
    all.extend(groups.iter().map(|group| GroupDefinition {
        name: group.name.clone(),
        members: group.members.clone(),
        until: UnixTime::NEVER,
    }));
    let own = all.len();
    for (name, members) in shared.iter().flat_map(|shared| &shared.content.groups) {
        if all[..own].iter().all(|own| own.name != *name) {
            all.push(GroupDefinition {
                name: name.clone(),
                members: members.keys().copied().map(Member::Identity).collect(),
                until: shared.as_ref().map_or(UnixTime::NEVER, |shared| shared.content.expires),
            });
        }
    }
    let may_be_absent = configured.from.is_some() || !inputs.is_complete;
    Groups::expand(&all, may_be_absent).map_err(|error| {
        let of_path =
            |(definition, _): &&(GroupDefinition, _)| error.path.contains(&definition.name);
        match configured.groups.iter().find(of_path) {
            Some((_, source)) => source.wrong(error.to_string()).into(),
            None => error.into(),
        }
    })
}
