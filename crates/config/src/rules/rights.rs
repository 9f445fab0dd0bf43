//! Lists the rights that rules may give.

use std::sync::Arc;

use levada_core::{Identity, UnixTime};
use levada_services::brokering::ServicePattern;

use super::evaluate::Rules;
use super::requesters::Named;
use super::rule::{Action, Rule};

/// The effect of a rule that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It allows the session.
    Allow,
    /// An entity decides.
    Ask,
    /// It denies the session.
    Deny,
}

/// The effect of a rule on an identity at a service.
#[derive(Clone, Copy, Debug)]
pub struct RuleRight<'a> {
    /// The identity; `None` for every identity.
    pub identity: Option<Identity>,
    /// The group that the rule names, of which the identity is a member.
    pub group: Option<&'a str>,
    /// The time from which it gives no right, because the group has expired.
    pub until: UnixTime,
    /// The services.
    pub services: &'a ServicePattern,
    /// The place of the rule, as FILE:LINE.
    pub place: &'a Arc<str>,
    /// The effect.
    pub effect: Effect,
}

impl Effect {
    /// One lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl Rules {
    /// The rights that the rules may give at `node` to the identities that they name, each with
    /// some parameters. Rules before one may deny it.
    pub fn rights<'a>(&'a self, node: &'a Identity) -> impl Iterator<Item = RuleRight<'a>> {
        self.giving().flat_map(move |rule| {
            rule.requesters.named().flat_map(move |named| rule.effects(Some(named), node))
        })
    }

    /// As [`Self::rights`], only of `identity`.
    pub fn rights_of<'a>(
        &'a self,
        identity: Identity,
        node: &'a Identity,
    ) -> impl Iterator<Item = RuleRight<'a>> {
        self.giving().flat_map(move |rule| {
            let named = rule.requesters.named_as(identity);
            named.flat_map(move |named| rule.effects(Some(named), node))
        })
    }

    /// The effects at `node` of the rules for every identity, also of those that deny.
    pub fn for_everyone<'a>(&'a self, node: &'a Identity) -> impl Iterator<Item = RuleRight<'a>> {
        let rules = self.0.iter().filter(|rule| rule.requesters.are_all());
        rules.flat_map(move |rule| rule.effects(None, node))
    }

    /// The patterns that match none of the services `names` of `node`, with the places of their
    /// rules.
    pub fn unmatched<'a>(
        &'a self,
        node: &'a Identity,
        names: &'a [&'a str],
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a ServicePattern)> {
        let all = self
            .0
            .iter()
            .flat_map(|rule| rule.services.iter().map(move |services| (&rule.place, services)));
        all.filter(|(_, services)| !names.iter().any(|name| services.matches(node, name)))
    }

    /// The rules that allow or ask.
    pub(super) fn giving(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(|rule| rule.gives())
    }
}

impl Rule {
    /// Its effects at `node` on an identity, or on every identity: one for each of its services.
    fn effects<'a>(
        &'a self,
        named: Option<Named<'a>>,
        node: &'a Identity,
    ) -> impl Iterator<Item = RuleRight<'a>> {
        let effect = match self.action {
            Action::Allow(_) => Effect::Allow,
            Action::Ask(..) => Effect::Ask,
            Action::Deny => Effect::Deny,
        };
        self.services_at(node).map(move |services| RuleRight {
            identity: named.map(|named| named.identity),
            group: named.and_then(|named| named.group),
            until: named.map_or(UnixTime::NEVER, |named| named.until),
            services,
            place: &self.place,
            effect,
        })
    }
}
