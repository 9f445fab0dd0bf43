//! Changes of the groups in the store, and of the rights of groups.

use levada_config::Member;
use levada_core::{GroupSetError, check_name};
use thiserror::Error;

use crate::node::Node;
use crate::policy::{Inputs, PolicyError};
use crate::store::{GroupRight, GroupSetRefusal, LocalGroup, Store, StoreError};

/// The reason why groups were not changed or exchanged.
#[derive(Debug, Error)]
pub(crate) enum GroupsError {
    /// The lists would not be valid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The request cannot be fulfilled as it is.
    #[error("{0}")]
    Request(String),
    /// Something that it names does not exist.
    #[error("{0}")]
    Absent(String),
    /// A set of groups is malformed, forged or too large.
    #[error(transparent)]
    Set(#[from] GroupSetError),
    /// A set of groups is not the next one.
    #[error(transparent)]
    Refused(#[from] GroupSetRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Node {
    /// Adds members to a group of the store, which is created if it is missing. To be called in the
    /// blocking pool, as all changes of groups.
    ///
    /// # Errors
    /// [`GroupsError`]; nothing has changed.
    pub(crate) fn add_to_group(
        &self,
        store: &Store,
        name: &str,
        members: &[Member],
    ) -> Result<(), GroupsError> {
        check_name(name).map_err(|error| GroupsError::Request(format!("`{name}`: {error}")))?;
        let now = self.now();
        let add = |inputs: &mut Inputs| {
            refuse_configured(inputs, name)?;
            let is_named = |group: &LocalGroup| group.name == name;
            if !inputs.groups.iter().any(is_named) {
                if let Some(text) = of_other_node(inputs, name) {
                    return Err(GroupsError::Request(text));
                }
                inputs.groups.push(LocalGroup { name: name.to_owned(), members: Vec::new() });
            }
            for group in inputs.groups.iter_mut().filter(|group| is_named(group)) {
                let added = members.iter().filter(|member| !group.members.contains(member));
                let added: Vec<Member> = added.cloned().collect();
                group.members.extend(added);
            }
            Ok::<_, GroupsError>(())
        };
        let commit = |(): &()| Ok::<_, GroupsError>(store.add_members(name, members, now)?);
        self.change_lists(store, add, commit)
    }

    /// Removes members from a group of the store.
    ///
    /// # Errors
    /// [`GroupsError`]; nothing has changed.
    pub(crate) fn remove_from_group(
        &self,
        store: &Store,
        name: &str,
        members: &[Member],
    ) -> Result<(), GroupsError> {
        let now = self.now();
        let remove = |inputs: &mut Inputs| {
            let group = stored(inputs, name)?;
            for member in members {
                if !group.members.contains(member) {
                    let text = format!("{member} is no member of `{name}`");
                    return Err(GroupsError::Absent(text));
                }
            }
            group.members.retain(|member| !members.contains(member));
            Ok::<_, GroupsError>(())
        };
        let commit = |(): &()| Ok::<_, GroupsError>(store.remove_members(name, members, now)?);
        self.change_lists(store, remove, commit)
    }

    /// Removes a group of the store with its members and rights.
    ///
    /// # Errors
    /// [`GroupsError`], also if the configuration or another group refers to it; nothing has
    /// changed.
    pub(crate) fn remove_group(&self, store: &Store, name: &str) -> Result<(), GroupsError> {
        let now = self.now();
        let remove = |inputs: &mut Inputs| {
            stored(inputs, name)?;
            let place = inputs.configured.place_of_use(name);
            let removed = Member::Group(name.to_owned());
            let outer = inputs.groups.iter().find(|group| group.members.contains(&removed));
            let outer = outer.map(|group| Member::Group(group.name.clone()).to_string());
            if let Some(user) = place.or(outer) {
                let text = format!("{user} refers to {removed}: remove it there first");
                return Err(GroupsError::Request(text));
            }
            inputs.groups.retain(|group| group.name != name);
            inputs.rights.retain(|right| right.group != name);
            Ok::<_, GroupsError>(())
        };
        let commit = |(): &()| Ok::<_, GroupsError>(store.remove_group(name, now)?);
        self.change_lists(store, remove, commit)
    }

    /// Gives the members of a group rights, each of which replaces an earlier one to the same
    /// service.
    ///
    /// # Errors
    /// [`GroupsError`], also if there is no such group; nothing has changed.
    pub(crate) fn allow_group(
        &self,
        store: &Store,
        group: &str,
        rights: &[GroupRight],
    ) -> Result<(), GroupsError> {
        let now = self.now();
        if self.rights.policy.lists().groups.members(group).is_none() {
            return Err(GroupsError::Absent(format!("no group has the name `{group}`")));
        }
        for right in rights {
            let add = |inputs: &mut Inputs| {
                inputs.rights.retain(|old| !is_right(old, group, &right.service));
                inputs.rights.push(right.clone());
                Ok::<_, GroupsError>(())
            };
            let commit = |(): &()| Ok::<_, GroupsError>(store.add_group_right(right, now)?);
            self.change_lists(store, add, commit)?;
        }
        Ok(())
    }

    /// Removes the right of a group to `service`, or every right if `None`. Returns the number of
    /// rights that were removed.
    ///
    /// # Errors
    /// [`GroupsError`]; nothing has changed.
    pub(crate) fn disallow_group(
        &self,
        store: &Store,
        group: &str,
        service: Option<&str>,
    ) -> Result<usize, GroupsError> {
        let now = self.now();
        let remove = |inputs: &mut Inputs| {
            let before = inputs.rights.len();
            inputs.rights.retain(|right| {
                right.group != group || service.is_some() && right.service.as_deref() != service
            });
            Ok::<_, GroupsError>(before - inputs.rights.len())
        };
        let commit =
            |_: &usize| Ok::<_, GroupsError>(store.remove_group_right(group, service, now)?);
        self.change_lists(store, remove, commit)
    }
}

fn is_right(right: &GroupRight, group: &str, service: &Option<String>) -> bool {
    right.group == group && right.service == *service
}

/// The group of the store with this name.
fn stored<'a>(inputs: &'a mut Inputs, name: &str) -> Result<&'a mut LocalGroup, GroupsError> {
    refuse_configured(inputs, name)?;
    let from_other = of_other_node(inputs, name);
    let found = inputs.groups.iter_mut().find(|group| group.name == name);
    found.ok_or_else(|| {
        GroupsError::Absent(from_other.unwrap_or_else(|| format!("no group has the name `{name}`")))
    })
}

/// The text about a group of the node in `[groups] from`, if it has one of this name. A group of
/// this node would hide it, with its blocks.
fn of_other_node(inputs: &Inputs, name: &str) -> Option<String> {
    let shared = inputs.shared.as_ref()?;
    let from = inputs.configured.from?;
    shared.content.groups.contains_key(name).then(|| {
        format!("`{name}` is a group of the node in `[groups] from`, {from}: change it there")
    })
}

/// Refuses a group of the configuration, which is its owner's file.
fn refuse_configured(inputs: &Inputs, name: &str) -> Result<(), GroupsError> {
    let groups = &inputs.configured.groups;
    match groups.iter().find(|(definition, _)| definition.name == name) {
        Some((_, source)) => Err(GroupsError::Request(format!(
            "`{name}` is defined at {}: change it there, and reload the node",
            source.place()
        ))),
        None => Ok(()),
    }
}
