//! Signs sets of groups for other nodes.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use levada_core::{GroupSet, NamedMembers, UnixTime, check_name};

use super::change::GroupsError;
use super::take::CLOCK_TOLERANCE;
use crate::node::Node;
use crate::store::{GroupExport, Store};

impl Node {
    /// Signs a set of groups with the next version, and stores it for its readers. To be called in
    /// the blocking pool.
    ///
    /// # Errors
    /// [`GroupsError`] if a group does not exist, or the set exceeds a limit.
    pub(crate) fn export_groups(
        &self,
        store: &Store,
        set: &str,
        groups: Vec<String>,
        lifetime: Duration,
    ) -> Result<GroupExport, GroupsError> {
        check_name(set).map_err(|error| GroupsError::Request(format!("`{set}`: {error}")))?;
        let lists = self.rights.policy.lists();
        if let Some(name) = groups.iter().find(|name| lists.groups.members(name).is_none()) {
            return Err(GroupsError::Absent(format!("no group has the name `{name}`")));
        }
        let _signing = self.rights.groups.signing.lock().unwrap_or_else(PoisonError::into_inner);
        self.sign(store, set, groups, lifetime.as_secs().max(1))
    }

    /// The set with this name, signed again if its groups or their times have changed, or half of
    /// its lifetime is over; `None` if it was never exported. To be called in the blocking pool.
    ///
    /// # Errors
    /// [`GroupsError`] as for an export.
    pub(crate) fn current_export(
        &self,
        store: &Store,
        set: &str,
    ) -> Result<Option<GroupExport>, GroupsError> {
        let _signing = self.rights.groups.signing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = store.group_export(set)? else { return Ok(None) };
        let now = self.now();
        let (signed, signer) = GroupSet::verify(&last.text)?;
        let (members, until) = self.members(&last.groups);
        // The key may have been rotated since.
        let has_changed = !is_same(&signed.groups, &members) || signer != self.identity();
        if is_current(&last, &signed, until, now) && !has_changed {
            return Ok(Some(last));
        }
        self.sign(store, set, last.groups, last.lifetime).map(Some)
    }

    /// The caller holds the lock of signatures.
    fn sign(
        &self,
        store: &Store,
        set: &str,
        groups: Vec<String>,
        lifetime: u64,
    ) -> Result<GroupExport, GroupsError> {
        let now = self.now();
        let last = store.group_export(set)?.map_or(0, |last| last.version);
        // A version that follows the time goes on after the restore of an old backup, too.
        let version = now.0.max(last + 1);
        let (members, until) = self.members(&groups);
        let expires = now.after(Duration::from_secs(lifetime)).min(until);
        let content =
            GroupSet { set: set.to_owned(), version, time: now, expires, groups: members };
        let text = content.sign(&self.key)?;
        let name = set.to_owned();
        let export = GroupExport { name, version, groups, lifetime, text, signed: now };
        store.add_group_export(&export, now)?;
        Ok(export)
    }

    /// The members of groups, and the time at which the rights of the first of them end. Members
    /// whose time has passed stay, because blocks of a set do not end with it. A group that was
    /// removed is left out.
    fn members(&self, groups: &[String]) -> (BTreeMap<String, NamedMembers>, UnixTime) {
        // They are comments in a set.
        let names = self.client.known().name_of_each().unwrap_or_default();
        let lists = self.rights.policy.lists();
        let mut all = BTreeMap::new();
        let mut expires = UnixTime::NEVER;
        for group in groups {
            let Some(members) = lists.groups.members(group) else { continue };
            let named = members.iter().map(|(identity, until)| {
                expires = expires.min(*until);
                (*identity, names.get(identity).cloned())
            });
            all.insert(group.clone(), named.collect::<NamedMembers>());
        }
        (all, expires)
    }
}

/// Returns true if half of the lifetime of the last set is not over, and its expiry is the one that
/// follows from the present time `until` of its members. So an expired set is not signed again for
/// each reader. One that was signed by a clock ahead of this one, which was set back since, is not
/// current: other nodes refuse it.
fn is_current(last: &GroupExport, signed: &GroupSet, until: UnixTime, now: UnixTime) -> bool {
    let expires = last.signed.after(Duration::from_secs(last.lifetime)).min(until);
    let renewal = last.signed.after(Duration::from_secs(last.lifetime / 2));
    now < renewal && signed.expires == expires && last.signed <= now.after(CLOCK_TOLERANCE)
}

/// Returns true if the groups have the same members; their names may differ.
fn is_same(one: &BTreeMap<String, NamedMembers>, other: &BTreeMap<String, NamedMembers>) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|((name, members), (other_name, others))| {
            name == other_name && members.keys().eq(others.keys())
        })
}
