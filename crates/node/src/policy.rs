//! Rights, blocks and rules of the configuration, the command line and of groups.

mod configured;
mod inputs;
mod lists;
mod notes;
mod right;
mod shared;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwap;
use levada_config::{Asked, Decision, Prospect};
use levada_core::{Identity, UnixTime};

pub(crate) use configured::Configured;
pub(crate) use inputs::Inputs;
pub(crate) use lists::{Lists, PolicyError};
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

    /// Returns true if a right of `identity` to `service` has expired.
    pub(crate) fn right_has_expired(
        &self,
        identity: &Identity,
        service: &str,
        now: UnixTime,
    ) -> bool {
        let lists = self.lists.load();
        lists.of(identity).any(|right| right.covers(service, false) && !right.is_valid(now))
            || lists.rules.gave_to(identity, now)
    }

    /// The blocked identities.
    pub(crate) fn blocked(&self) -> BTreeSet<Identity> {
        self.lists.load().block.keys().copied().collect()
    }

    /// Returns true if the configuration or a group names `identity`: with any role, so that its
    /// key is not one that this node has never seen.
    pub(crate) fn names(&self, identity: &Identity) -> bool {
        self.lists.load().name(identity)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use levada_config::{Config, MAX_GROUP_MEMBERS, Member};
    use levada_home::known::Known;

    use super::*;
    use crate::overrides::Overrides;
    use crate::store::{GroupRight, LocalGroup};

    fn inputs(text: &str) -> Inputs {
        let folder = tempfile::tempdir().unwrap();
        let known = Known::open(&folder.path().join("known.db")).unwrap();
        let config = Config::parse(Path::new("config.toml"), text).unwrap();
        let configured = Configured::new(&config, &Overrides::default(), &known).unwrap();
        Inputs::unchecked(configured, Some(Vec::new()))
    }

    #[test]
    fn every_identity_of_the_lists_is_named() {
        let identities = [1, 2, 3, 4, 5].map(|byte| Identity::from_bytes([byte; 32]));
        let [allowed, blocked, signer, reader, member] = &identities;
        let text = format!(
            "allow = ['{allowed}']\nblock = ['{blocked}']\n\
             [groups]\nfrom = '{signer}'\nreaders = ['{reader}']\n\
             [[group]]\nname = 'unused'\nmembers = ['{member}']\n"
        );
        let policy = Policy::new(inputs(&text)).unwrap();
        for identity in &identities {
            assert!(policy.names(identity), "{identity}");
        }
        assert!(!policy.names(&Identity::from_bytes([6; 32])));
    }

    #[test]
    fn the_rights_of_groups_in_the_store_have_a_limit_together() {
        let member = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            Member::Identity(Identity::from_bytes(bytes))
        };
        let members = (0..MAX_GROUP_MEMBERS).map(member).collect();
        let right = |number: usize| {
            let service = Some(format!("service-{number}"));
            GroupRight { group: "all".into(), service, expires: UnixTime::NEVER }
        };
        let mut inputs = inputs("");
        inputs.groups = vec![LocalGroup { name: "all".into(), members }];
        inputs.rights = (0..5).map(right).collect();
        assert_eq!(Lists::new(&inputs).unwrap().rights.len(), 100_000);
        inputs.rights.push(right(5));
        assert!(matches!(Lists::new(&inputs), Err(PolicyError::TooManyRights)));
    }
}
