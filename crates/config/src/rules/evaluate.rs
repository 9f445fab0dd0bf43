//! Evaluates rules in their order.

use std::sync::Arc;

use levada_core::{Identity, UnixTime};
use levada_home::known::Known;

use super::asked::Asked;
use super::rule::{Action, Rule, Verdict};
use super::source::RuleSource;
use crate::ConfigError;

/// Rules in order, with names resolved to keys.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

/// The decision of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The place of the rule, as FILE:LINE.
    pub place: Arc<str>,
    /// Its verdict.
    pub verdict: Verdict,
}

/// A right that a rule may give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRight {
    /// The identity; `None` for every identity.
    pub identity: Option<Identity>,
    /// The name of the service, in which `*` stands for any characters.
    pub service: String,
    /// The place of the rule, as FILE:LINE.
    pub place: Arc<str>,
    /// True if an entity must approve each session.
    pub asks: bool,
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
    /// Resolves the names in rules to the keys that are pinned now.
    ///
    /// # Errors
    /// [`ConfigError`] for a name that is not pinned, with its position.
    pub fn resolve(sources: &[RuleSource], known: &Known) -> Result<Self, ConfigError> {
        let rules = sources.iter().map(|source| source.resolve(known));
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// The decision of the first rule that matches; `None` if none does.
    pub fn evaluate(&self, asked: &Asked<'_>, now: UnixTime) -> Option<Decision> {
        self.0.iter().find_map(|rule| {
            Some(Decision { place: rule.place.clone(), verdict: rule.verdict(asked, now)? })
        })
    }

    /// The rights that the rules may give at `node`, each with some parameters. Rules before one may
    /// deny it.
    pub fn rights(&self, node: &Identity) -> Vec<RuleRight> {
        let gives = |rule: &&Rule| !matches!(rule.action, Action::Deny);
        let rights_of = |rule: &Rule| {
            let services: Vec<String> = rule.services_at(node).map(str::to_owned).collect();
            let asks = matches!(rule.action, Action::Ask(..));
            let place = rule.place.clone();
            let of = move |identity| {
                let place = place.clone();
                let right =
                    move |service| RuleRight { identity, service, place: place.clone(), asks };
                services.clone().into_iter().map(right)
            };
            rule.requesters.all().flat_map(of).collect::<Vec<_>>()
        };
        self.0.iter().filter(gives).flat_map(rights_of).collect()
    }

    /// Returns true if a rule that allows or asks names `identity`. A rule for everyone names
    /// no identity.
    pub fn may_give_to(&self, identity: &Identity) -> bool {
        let gives = |rule: &&Rule| !matches!(rule.action, Action::Deny);
        self.0.iter().filter(gives).any(|rule| rule.requesters.names(identity))
    }

    /// Returns true if a rule names `identity`.
    pub fn names(&self, identity: &Identity) -> bool {
        self.0.iter().any(|rule| rule.requesters.names(identity))
    }

    /// Lets the rules that deny or ask concern the successors of the keys that they name: a rotation
    /// must not lead past them. `rotations` are pairs of a key and its successor. Returns true if a
    /// rule has changed.
    pub fn follow(&mut self, rotations: &[(Identity, Identity)]) -> bool {
        let restrict = |rule: &&mut Rule| !matches!(rule.action, Action::Allow(_));
        let rules = self.0.iter_mut().filter(restrict);
        rules.fold(false, |changed, rule| rule.requesters.follow(rotations) || changed)
    }

    /// The rights that the rules may give `identity` to a service with some parameters. `by_name` is
    /// as in [`Asked`].
    pub fn prospect(
        &self,
        identity: &Identity,
        node: &Identity,
        service: &str,
        by_name: bool,
    ) -> Prospect {
        let mut prospect = Prospect::Unconcerned;
        for rule in self.0.iter().filter(|rule| rule.concerns(identity, node, service)) {
            match rule.action {
                // Rules behind it are not reached.
                Action::Deny if prospect == Prospect::Unconcerned => {
                    return Prospect::Denied(rule.place.clone());
                }
                Action::Deny => break,
                _ if !by_name || rule.names(node, service) => prospect = Prospect::Possible,
                _ => {}
            }
        }
        prospect
    }
}
