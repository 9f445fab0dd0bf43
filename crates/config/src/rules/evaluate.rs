//! Evaluates rules in their order.

use std::collections::HashMap;
use std::sync::Arc;

use levada_core::{Identity, UnixTime};
use levada_home::known::Known;

use super::asked::Asked;
use super::rule::{Action, Rule, Verdict};
use super::source::RuleSource;
use crate::{ConfigError, Groups, Subject};

/// The maximum number of members of groups in all rules together.
const MAX_MEMBERS: usize = 100_000;

/// Rules in order, with names resolved to keys.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub(super) Vec<Rule>);

/// The decision of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The place of the rule, as FILE:LINE.
    pub place: Arc<str>,
    /// Its verdict.
    pub verdict: Verdict,
}

/// The rights that rules may give to an identity at a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// A rule allows or asks, with some parameters.
    Possible,
    /// The rule at this place denies, with any parameters.
    Denied(Arc<str>),
    /// No rule gives or denies it.
    Unconcerned,
}

impl Rules {
    /// Resolves the names in rules to the keys that are pinned now. Groups have no members yet:
    /// [`Self::expanded`] has them.
    ///
    /// # Errors
    /// [`ConfigError`] for a name that is not pinned, with its position.
    pub fn resolve(sources: &[RuleSource], known: &Known) -> Result<Self, ConfigError> {
        let rules = sources.iter().map(|source| source.resolve(known));
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// The same rules, with the members that their groups have in `groups`.
    ///
    /// # Errors
    /// [`ConfigError`] for a group that does not exist, and for too many members.
    pub fn expanded(&self, groups: &Groups) -> Result<Self, ConfigError> {
        let mut rules = self.0.clone();
        let mut total = 0;
        for rule in &mut rules {
            total += rule.requesters.expand(groups)?;
            if let Some(group) = rule.requesters.groups().next().filter(|_| total > MAX_MEMBERS) {
                let text = format!("the groups of all rules have more than {MAX_MEMBERS} members");
                return Err(group.wrong(text));
            }
        }
        Ok(Self(rules))
    }

    /// The groups that the rules name.
    pub fn groups(&self) -> impl Iterator<Item = &Subject> {
        self.0.iter().flat_map(|rule| rule.requesters.groups())
    }

    /// The decision of the first rule that matches; `None` if none does.
    pub fn evaluate(&self, asked: &Asked<'_>, now: UnixTime) -> Option<Decision> {
        self.0.iter().find_map(|rule| {
            Some(Decision { place: rule.place.clone(), verdict: rule.verdict(asked, now)? })
        })
    }

    /// Returns true if a rule that allows or asks names `identity`. A rule for everyone names
    /// no identity.
    pub fn may_give_to(&self, identity: &Identity, now: UnixTime) -> bool {
        self.giving().any(|rule| rule.requesters.name_validly(identity, now))
    }

    /// Returns true if a rule that allows or asks names `identity` as a member of a group that has
    /// expired.
    pub fn gave_to(&self, identity: &Identity, now: UnixTime) -> bool {
        let mut of = self.giving().map(|rule| &rule.requesters);
        of.any(|all| all.names(identity) && !all.name_validly(identity, now))
    }

    /// Returns true if a rule names `identity`, as a requester or as the entity that it asks.
    pub fn name(&self, identity: &Identity) -> bool {
        self.0.iter().any(|rule| {
            rule.requesters.names(identity)
                || matches!(&rule.action, Action::Ask(entity, _) if entity == identity)
        })
    }

    /// Replaces the keys that stand for names: in the requesters of rules that allow, and the
    /// entities that rules ask. `successor` returns the key that a name stands for now.
    pub fn follow_names(&mut self, successor: impl Fn(Identity) -> Identity) {
        for rule in &mut self.0 {
            match &mut rule.action {
                Action::Allow(_) => rule.requesters.follow_names(&successor),
                Action::Ask(entity, _) => *entity = successor(*entity),
                Action::Deny => {}
            }
        }
    }

    /// Lets the rules that deny or ask concern the successors of the keys that they name: a
    /// rotation must not lead past them. `rotations` has rotated keys with their successors.
    pub fn follow(&mut self, rotations: &HashMap<Identity, Identity>) {
        let restricts = |rule: &&mut Rule| !matches!(rule.action, Action::Allow(_));
        self.0.iter_mut().filter(restricts).for_each(|rule| rule.requesters.follow(rotations));
    }

    /// The rights that the rules may give `identity` to a service with some parameters. `by_name`
    /// is as in [`Asked`].
    pub fn prospect(
        &self,
        identity: &Identity,
        node: &Identity,
        (service, by_name): (&str, bool),
        now: UnixTime,
    ) -> Prospect {
        let mut prospect = Prospect::Unconcerned;
        for rule in self.0.iter().filter(|rule| rule.concerns(identity, node, service)) {
            if rule.may_give(identity, node, (service, by_name), now) {
                prospect = Prospect::Possible;
            } else if rule.decides_always() {
                // Rules behind it are not reached.
                if prospect == Prospect::Unconcerned {
                    prospect = Prospect::Denied(rule.place.clone());
                }
                break;
            }
        }
        prospect
    }
}
