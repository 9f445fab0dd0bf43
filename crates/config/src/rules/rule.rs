//! One rule, and its verdict about a session.

use std::sync::Arc;

use levada_core::{Identity, UnixTime};
use levada_services::brokering::ServicePattern;

use super::asked::Asked;
use super::requesters::Requesters;
use super::terms::Terms;

/// The verdict of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The rule allows the session.
    Allow {
        /// The time at which the right to start it ends; `None` leaves it to the node.
        expires: Option<UnixTime>,
    },
    /// The rule denies it.
    Deny,
    /// An entity decides.
    Ask {
        /// The entity.
        entity: Identity,
        /// As for `Allow`.
        expires: Option<UnixTime>,
    },
}

/// A rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// Its place, as FILE:LINE.
    pub(super) place: Arc<str>,
    pub(super) requesters: Requesters,
    pub(super) services: Vec<ServicePattern>,
    pub(super) action: Action,
}

/// The action of a rule.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Allow(Terms),
    Deny,
    Ask(Identity, Terms),
}

impl Rule {
    /// Returns true if it allows or asks.
    pub(super) fn gives(&self) -> bool {
        !matches!(self.action, Action::Deny)
    }

    pub(super) fn concerns(&self, identity: &Identity, node: &Identity, service: &str) -> bool {
        self.requesters.concern(identity)
            && self.services.iter().any(|pattern| pattern.matches(node, service))
    }

    /// Its services at `node`.
    pub(super) fn services_at<'a>(
        &'a self,
        node: &'a Identity,
    ) -> impl Iterator<Item = &'a ServicePattern> {
        self.services.iter().filter(move |pattern| pattern.is_at(node))
    }

    /// Returns true if it names the service without `*`.
    pub(super) fn names(&self, node: &Identity, service: &str) -> bool {
        self.services.iter().any(|pattern| pattern.is_exact() && pattern.matches(node, service))
    }

    /// Returns true if it decides about all sessions of its requesters and services.
    pub(super) fn decides_always(&self) -> bool {
        match &self.action {
            Action::Deny => true,
            Action::Ask(_, terms) => terms.have_no_patterns(),
            Action::Allow(_) => false,
        }
    }

    /// Returns true if it can give the identity a right to the service; with `by_name`, only if it
    /// names the service.
    pub(super) fn may_give(
        &self,
        identity: &Identity,
        node: &Identity,
        (service, by_name): (&str, bool),
        now: UnixTime,
    ) -> bool {
        self.gives()
            && self.requesters.are_valid(identity, now)
            && (!by_name || self.names(node, service))
    }

    /// The verdict; `None` if the rule does not match.
    pub(super) fn verdict(&self, asked: &Asked<'_>, now: UnixTime) -> Option<Verdict> {
        if !self.concerns(asked.identity, asked.node, asked.service) {
            return None;
        }
        let gives = self.may_give(asked.identity, asked.node, (asked.service, asked.by_name), now);
        match &self.action {
            Action::Deny => Some(Verdict::Deny),
            Action::Allow(terms) => {
                let covered = gives && terms.cover(asked.params);
                let expires = terms.permit(asked, now).filter(|_| covered)?;
                Some(Verdict::Allow { expires })
            }
            Action::Ask(entity, terms) if terms.may_match(asked.params) => {
                let within = terms.permit(asked, now).filter(|_| gives);
                let ask = |expires| Verdict::Ask { entity: *entity, expires };
                Some(within.map_or(Verdict::Deny, ask))
            }
            Action::Ask(..) => None,
        }
    }
}
