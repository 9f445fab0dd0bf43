//! Rights, blocks and rules of the configuration, the command line and of groups.

mod configured;
mod lists;
mod right;
mod shared;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwap;
use levada_config::{Asked, Decision, Prospect, RuleRight};
use levada_core::{Identity, UnixTime};

pub(crate) use configured::Configured;
pub(crate) use lists::{Inputs, Lists, PolicyError};
pub(crate) use right::{ListedRight, Origin};
pub(crate) use shared::{GroupExchange, RefusedSet, SharedSet};

/// The allow-list, blocks and rules of the configuration and the command line, and the rights of
/// groups, which change while the node runs. The rights of single identities are in the store.
pub struct Policy {
    lists: ArcSwap<Lists>,
    /// Locked for a request or start from its check to its commit, and for a change from its
    /// commit until the lists have it. So nothing that a change forbids is committed after it.
    inputs: RwLock<Inputs>,
}

/// The lists before and after a change.
pub(crate) struct Changed {
    pub(crate) before: Arc<Lists>,
    pub(crate) after: Arc<Lists>,
}

impl Policy {
    /// # Errors
    /// [`PolicyError`] for groups that are not valid.
    pub(crate) fn new(inputs: Inputs) -> Result<Self, PolicyError> {
        let lists = ArcSwap::from_pointee(Lists::new(&inputs)?);
        Ok(Self { lists, inputs: RwLock::new(inputs) })
    }

    /// Prevents changes until the result is dropped. To be called in the blocking pool, because a
    /// change waits for the disk.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, Inputs> {
        self.inputs.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the inputs, and the lists that follow from them. `commit` is called when the new
    /// lists are valid; if it fails, nothing changes. To be called in the blocking pool.
    ///
    /// # Errors
    /// The errors of `change` and `commit`; a [`PolicyError`] if the groups are not valid then.
    pub(crate) fn change<T, E: From<PolicyError>>(
        &self,
        change: impl FnOnce(&mut Inputs) -> Result<T, E>,
        commit: impl FnOnce(&T) -> Result<(), E>,
    ) -> Result<(T, Changed), E> {
        let mut inputs: RwLockWriteGuard<'_, Inputs> =
            self.inputs.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = inputs.clone();
        let done = change(&mut next)?;
        let after = Arc::new(Lists::new(&next)?);
        commit(&done)?;
        let before = self.lists.swap(after.clone());
        *inputs = next;
        Ok((done, Changed { before, after }))
    }

    /// The lists.
    pub(crate) fn lists(&self) -> Arc<Lists> {
        self.lists.load_full()
    }

    pub(crate) fn allows_any(&self, identity: &Identity, now: UnixTime) -> bool {
        self.lists.load().allows_any(identity, now)
    }

    /// The right of `identity` to request `service`. With `by_name`, an entry for every service
    /// does not count. One that no group gives is preferred, then the one that ends last.
    pub(crate) fn right(
        &self,
        identity: &Identity,
        (service, by_name): (&str, bool),
        now: UnixTime,
    ) -> Option<ListedRight> {
        let lists = self.lists.load();
        let rights = lists.of(identity).filter(|right| right.is_valid(now));
        let rights = rights.filter(|right| right.covers(service, by_name));
        rights.max_by_key(|right| (right.group.is_none(), right.expires)).cloned()
    }

    /// The decision of the first rule that matches, if one does.
    pub(crate) fn rule(&self, asked: &Asked<'_>, now: UnixTime) -> Option<Decision> {
        self.lists.load().rules.evaluate(asked, now)
    }

    /// The rights that rules may give `identity` to a service of `node`.
    pub(crate) fn prospect(
        &self,
        identity: &Identity,
        node: &Identity,
        service: (&str, bool),
        now: UnixTime,
    ) -> Prospect {
        self.lists.load().rules.prospect(identity, node, service, now)
    }

    /// The rights that rules may give at `node`.
    pub(crate) fn rule_rights(&self, node: &Identity) -> Vec<RuleRight> {
        self.lists.load().rules.rights(node)
    }

    /// The blocked identities.
    pub(crate) fn blocked(&self) -> BTreeSet<Identity> {
        self.lists.load().block.keys().copied().collect()
    }

    /// Returns true if the lists allow or block `identity`, or a rule names it.
    pub(crate) fn names(&self, identity: &Identity) -> bool {
        let lists = self.lists.load();
        lists.block.contains_key(identity)
            || lists.rules.names(identity)
            || lists.of(identity).next().is_some()
    }

    pub(crate) fn blocks(&self, identity: &Identity) -> bool {
        self.lists.load().block.contains_key(identity)
    }

    /// The place of the block of `identity` in the configuration, as FILE:LINE.
    pub(crate) fn place_of_block(&self, identity: &Identity) -> Option<Arc<str>> {
        self.lists.load().block.get(identity).cloned()
    }

    /// Returns true if `identity` may read the sets of groups that this node signs.
    pub(crate) fn is_reader(&self, identity: &Identity) -> bool {
        self.lists.load().readers.contains(identity)
    }
}
