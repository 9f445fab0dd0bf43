//! The configuration, the groups and the rotations that the lists follow from.

use std::collections::BTreeSet;

use levada_core::Identity;
use levada_home::known::Known;

use super::configured::{Configured, successor};
use super::shared::SharedSet;
use crate::store::{Examined, GroupRight, LocalGroup, Store, StoreError};

/// All that the lists follow from.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) configured: Configured,
    /// The groups in the store.
    pub(crate) groups: Vec<LocalGroup>,
    /// The rights of groups in the store.
    pub(crate) rights: Vec<GroupRight>,
    /// The groups of another node.
    pub(crate) shared: Option<SharedSet>,
    /// Rotated keys with their successors.
    pub(crate) rotations: Vec<(Identity, Identity)>,
    /// All groups of this node are known; without this, an unknown group has no members.
    pub(crate) is_complete: bool,
}

impl Inputs {
    /// Reads the groups of the store for a configuration, whose keys follow their rotations.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub(crate) fn load(
        mut configured: Configured,
        store: &Store,
        known: &Known,
    ) -> Result<Self, StoreError> {
        let rotations = store.rotations()?;
        configured.follow(&rotations.iter().copied().collect());
        let all = [known.followed()?, rotations.clone()].concat();
        follow_signer(&mut configured, store, &all)?;
        Ok(Self {
            groups: store.local_groups()?,
            rights: store.group_rights()?,
            shared: shared(&configured, store)?,
            rotations,
            is_complete: true,
            configured,
        })
    }

    /// The configuration for a check without a node. `groups` are the stored ones, if they can
    /// be read.
    pub(crate) fn unchecked(configured: Configured, groups: Option<Vec<LocalGroup>>) -> Self {
        let is_complete = groups.is_some();
        let groups = groups.unwrap_or_default();
        let rights = Vec::new();
        let rotations = Vec::new();
        Self { configured, groups, rights, shared: None, rotations, is_complete }
    }

    /// As [`Self::load`], with the groups and rotations of a database that is read without a node.
    /// Rights of groups in the store, and groups of another node, are missing.
    pub(crate) fn examined(mut configured: Configured, database: &Examined) -> Self {
        let rotations = database.rotations().to_vec();
        configured.follow(&rotations.iter().copied().collect());
        let groups = Some(database.local_groups().to_vec());
        Self { rotations, ..Self::unchecked(configured, groups) }
    }
}

/// Follows the rotations of the key that signs the groups, also those that only a connection to its
/// node has proved, and moves the sets of its old keys to the new one. Without this, a rotation
/// would empty the groups until the next set, and lift the blocks of their members.
fn follow_signer(
    configured: &mut Configured,
    store: &Store,
    rotations: &[(Identity, Identity)],
) -> Result<(), StoreError> {
    let Some(from) = &mut configured.from else { return Ok(()) };
    *from = successor(*from, &rotations.iter().copied().collect());
    let mut keys = BTreeSet::from([*from]);
    while let Some((old, _)) =
        rotations.iter().find(|(old, new)| keys.contains(new) && !keys.contains(old))
    {
        keys.insert(*old);
        store.move_group_sets(old, from)?;
    }
    Ok(())
}

/// The set of groups of another node that the configuration names, if one was taken.
fn shared(configured: &Configured, store: &Store) -> Result<Option<SharedSet>, StoreError> {
    let Some(from) = &configured.from else { return Ok(None) };
    let text = store.group_set(from, &configured.set)?;
    Ok(text.and_then(|text| match SharedSet::read(&text) {
        Ok(set) => Some(set),
        Err(error) => {
            tracing::error!(%error, "the stored groups of the other node are damaged");
            None
        }
    }))
}
