//! The identities that a rule concerns.

use std::collections::HashMap;
use std::iter::once;

use levada_core::{Identity, UnixTime};
use levada_home::known::Known;

use crate::reader::Value;
use crate::{ConfigError, Groups, IdentityRef, Members, Subject, add_successors};

/// Stands for every identity.
const ANY: &str = "*";

/// `requesters` of a rule as it is written.
#[derive(Clone, Debug)]
pub(super) struct RequestersSource {
    any: bool,
    named: Vec<Subject>,
}

/// The identities that a rule concerns.
#[derive(Clone, Debug)]
pub(super) struct Requesters {
    any: bool,
    /// The identities that are written there.
    named: Members,
    /// The groups, with the members that they have now.
    groups: Vec<(Subject, Members)>,
}

/// An identity that a rule names, alone or as a member of a group.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) identity: Identity,
    pub(super) group: Option<&'a str>,
    /// The time from which the rule gives it no right, because its group has expired.
    pub(super) until: UnixTime,
}

impl RequestersSource {
    /// Reads the requesters of a rule of a node, which may be groups.
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        Self::with(value, Subject::read)
    }

    /// Reads the requesters of a rule of a policy, which has no groups.
    pub(super) fn read_of_policy(value: &Value<'_>) -> Result<Self, ConfigError> {
        Self::with(value, |value| IdentityRef::read(value).map(Subject::Identity))
    }

    fn with(
        value: &Value<'_>,
        subject: impl Fn(&Value<'_>) -> Result<Subject, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let entries = value.each(|value| match value.as_text() {
            Some(ANY) => Ok(None),
            _ => subject(value).map(Some),
        })?;
        if entries.is_empty() {
            return Err(value.wrong("it needs at least one entry; \"*\" is every identity"));
        }
        let any = entries.contains(&None);
        Ok(Self { any, named: entries.into_iter().flatten().collect() })
    }

    /// The subjects that are written there.
    pub(super) fn named(&self) -> impl Iterator<Item = &Subject> {
        self.named.iter()
    }

    /// Resolves names to the keys that are pinned now. Groups have no members yet.
    pub(super) fn resolve(&self, known: &Known) -> Result<Requesters, ConfigError> {
        let mut named = Members::new();
        let mut groups = Vec::new();
        for subject in &self.named {
            match subject {
                Subject::Identity(one) => drop(named.insert(one.identity(known)?, UnixTime::NEVER)),
                Subject::Group(_) => groups.push((subject.clone(), Members::new())),
            }
        }
        Ok(Requesters { any: self.any, named, groups })
    }
}

impl Requesters {
    /// The groups that are written there.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Subject> {
        self.groups.iter().map(|(subject, _)| subject)
    }

    /// Gives the groups the members that they have in `all`. Returns the number of members.
    pub(super) fn expand(&mut self, all: &Groups) -> Result<usize, ConfigError> {
        let mut total = 0;
        for (subject, members) in &mut self.groups {
            let found = all.members_or_none(subject.group().unwrap_or_default());
            *members = found.ok_or_else(|| subject.unknown_group())?.clone();
            total += members.len();
        }
        Ok(total)
    }

    /// Returns true if the rule concerns `identity`, also as a member of a group that has expired.
    pub(super) fn concern(&self, identity: &Identity) -> bool {
        self.any || self.names(identity)
    }

    /// Returns true if a rule that concerns `identity` can give it a right.
    pub(super) fn are_valid(&self, identity: &Identity, now: UnixTime) -> bool {
        self.any || self.name_validly(identity, now)
    }

    /// Returns true if they are every identity.
    pub(super) fn are_all(&self) -> bool {
        self.any
    }

    /// The identities that are written there, and the members of groups.
    pub(super) fn named(&self) -> impl Iterator<Item = Named<'_>> {
        self.sets_of_groups().flat_map(|(group, members)| {
            members.iter().map(move |(identity, until)| Named {
                identity: *identity,
                group,
                until: *until,
            })
        })
    }

    /// As [`Self::named`], only `identity`: once for each group that has it.
    pub(super) fn named_as(&self, identity: Identity) -> impl Iterator<Item = Named<'_>> {
        self.sets_of_groups().filter_map(move |(group, members)| {
            members.get(&identity).map(|until| Named { identity, group, until: *until })
        })
    }

    /// Returns true if `identity` is written there or a member of a group, not only in `*`.
    pub(super) fn names(&self, identity: &Identity) -> bool {
        self.sets().any(|members| members.contains_key(identity))
    }

    /// As [`Self::names`], without members of groups that have expired.
    pub(super) fn name_validly(&self, identity: &Identity, now: UnixTime) -> bool {
        self.sets().any(|members| members.get(identity).is_some_and(|until| now < *until))
    }

    /// Adds the successors of the keys that are written there and in groups.
    pub(super) fn follow(&mut self, rotations: &HashMap<Identity, Identity>) {
        add_successors(&mut self.named, rotations);
        for (_, members) in &mut self.groups {
            add_successors(members, rotations);
        }
    }

    /// Replaces the keys that are written there by what `successor` returns.
    pub(super) fn follow_names(&mut self, successor: impl Fn(Identity) -> Identity) {
        let named = std::mem::take(&mut self.named).into_iter();
        self.named = named.map(|(identity, until)| (successor(identity), until)).collect();
    }

    /// The identities that are written there, and the members of each group.
    fn sets_of_groups(&self) -> impl Iterator<Item = (Option<&str>, &Members)> {
        let groups = self.groups.iter().map(|(subject, members)| (subject.group(), members));
        once((None, &self.named)).chain(groups)
    }

    fn sets(&self) -> impl Iterator<Item = &Members> {
        self.sets_of_groups().map(|(_, members)| members)
    }
}
