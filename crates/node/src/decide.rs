//! Decides about requests and starts: by the rules of the configuration, and by the other rights if
//! no rule matches.

use std::sync::Arc;

use levada_capability::SWARM;
use levada_config::{Decision, Prospect, Verdict};
use levada_core::{Identity, UnixTime};

use crate::node::Node;
use crate::policy::ListedRight;
use crate::services::SHELL;
use crate::store::{ChosenRight, Permission, RightRequest, RuleGrant};
use crate::wanted::Wanted;

/// The decision about a request.
pub(crate) enum Ruling {
    /// A right permits it.
    Permitted(Permitted),
    /// A rule permits it if this entity approves it.
    Ask(Identity, Permitted),
    /// The rule at this place denies it.
    Denied(Arc<str>),
    /// A rule asks this entity about a session that is requested for another identity.
    AskForAnother(Identity),
    /// No rule matches, and no right permits it.
    NoRight,
}

/// The right that permits a request.
pub(crate) struct Permitted {
    pub(crate) permission: Permission,
    /// The time at which the right ends.
    pub(crate) until: UnixTime,
    /// The expiry of the session if the request sets none.
    pub(crate) expires: Option<UnixTime>,
    /// The source of the right, to explain it.
    pub(crate) source: Source,
}

/// The source of a right.
pub(crate) enum Source {
    /// The requester is the node itself.
    Own,
    /// The rule at this place.
    Rule(Arc<str>),
    /// The configuration, the command line or a group.
    Listed(ListedRight),
    /// The store. A request with a certain expiry may use another one of its rights.
    Store(ChosenRight),
}

/// The right that had permitted a session, as far as its starts depend on it.
#[derive(Clone, Copy)]
pub(crate) struct Basis {
    /// The rule that has given it; `None` if another right has.
    pub(crate) rule: Option<RuleGrant>,
    /// A right of the requester must exist when it starts: a group has permitted the session, or
    /// it is requested now.
    pub(crate) needs_right: bool,
}

/// The reason why a start is denied.
pub(crate) enum StartDenied {
    /// The rule at this place denies it to this identity of its chain, or to its requester.
    Rule(Arc<str>, Identity),
    /// A rule asks this entity, which has not approved the session, or is blocked now.
    NotApproved(Identity),
    /// A rule has given the session, and no rule or right permits it now.
    NoLonger,
    /// The right that gave the session has ended.
    RightEnded,
}

impl Ruling {
    /// The decision of a rule.
    pub(crate) fn by_rule(Decision { place, verdict }: Decision) -> Self {
        match verdict {
            Verdict::Deny => Self::Denied(place),
            Verdict::Allow { expires } => Self::Permitted(Permitted::by_rule(place, None, expires)),
            Verdict::Ask { entity, expires } => {
                Self::Ask(entity, Permitted::by_rule(place, Some(entity), expires))
            }
        }
    }
}

impl Permitted {
    fn by(permission: Permission, source: Source) -> Self {
        Self { permission, until: UnixTime::NEVER, expires: None, source }
    }

    /// A request of the node's own identity.
    pub(crate) fn of_node() -> Self {
        Self::by(Permission::Given, Source::Own)
    }

    /// A right of the configuration, the command line or a group permits it.
    pub(crate) fn by_list(right: ListedRight) -> Self {
        let permission = right.group.clone().map_or(Permission::Given, Permission::Group);
        Self { until: right.expires, ..Self::by(permission, Source::Listed(right)) }
    }

    fn by_rule(place: Arc<str>, approved_by: Option<Identity>, expires: Option<UnixTime>) -> Self {
        let permission = Permission::Rule(RuleGrant { approved_by });
        Self { expires, ..Self::by(permission, Source::Rule(place)) }
    }
}

impl Node {
    /// Returns true if `identity` may request `service`, with some parameters.
    pub(crate) fn may_request(&self, identity: &Identity, service: &str) -> bool {
        let own = self.identity();
        if *identity == own {
            return true;
        }
        let by_name = self.must_be_named(service);
        match self.rights.policy.prospect(identity, &own, (service, by_name), self.now()) {
            Prospect::Possible => true,
            Prospect::Denied(_) => false,
            Prospect::Unconcerned => self.permission(identity, service, 1).is_some(),
        }
    }

    /// Decides about a request. The node's own identity may request everything; the rules about the
    /// holder apply to its requests, too.
    pub(crate) fn decide_request(
        &self,
        requester: &Identity,
        holder: &Identity,
        wanted: &Wanted<'_>,
    ) -> Ruling {
        let is_own = *requester == self.identity();
        let of_holder = if holder == requester { None } else { self.rule(holder, wanted) };
        match of_holder {
            Some(Decision { place, verdict: Verdict::Deny }) => return Ruling::Denied(place),
            // The entity would not see for whom the session is.
            Some(Decision { verdict: Verdict::Ask { entity, .. }, .. }) if !is_own => {
                return Ruling::AskForAnother(entity);
            }
            _ => {}
        }
        if let Some(decision) = self.rule(requester, wanted) {
            return match Ruling::by_rule(decision) {
                Ruling::Ask(entity, _) if holder != requester => Ruling::AskForAnother(entity),
                ruling => ruling,
            };
        }
        let permission = self.permission(requester, wanted.service, wanted.uses);
        permission.map_or(Ruling::NoRight, Ruling::Permitted)
    }

    /// Decides about the start of a session of `requester` through the identities of `chain`, with
    /// the parameters that it then has.
    ///
    /// The capability is the right to start it. The rules about the requester apply as to a
    /// request; of the others in the chain, only rules that deny or ask apply.
    pub(crate) fn decide_start(
        &self,
        requester: &Identity,
        chain: &[Identity],
        wanted: &Wanted<'_>,
        basis: Basis,
    ) -> Result<(), StartDenied> {
        // Tickets and the catalogue admit peers to shares.
        if wanted.service == SWARM {
            return Ok(());
        }
        let is_own = *requester == self.identity();
        let lists = self.rights.policy.lists();
        let has_approved = |entity: Identity| {
            let approved_by = basis.rule.and_then(|rule| rule.approved_by);
            let is_blocked =
                lists.block.contains_key(&entity) || self.rights.store.blocked(&entity);
            approved_by.is_some_and(|by| lists.are_of_one(by, entity)) && !is_blocked
        };
        let check = |identity: &Identity| match self.rule(identity, wanted) {
            None => Ok(false),
            Some(Decision { verdict: Verdict::Allow { .. }, .. }) => Ok(true),
            Some(Decision { place, verdict: Verdict::Deny }) => {
                Err(StartDenied::Rule(place, *identity))
            }
            Some(Decision { verdict: Verdict::Ask { entity, .. }, .. }) => {
                // The owner needs no approval.
                let is_approved = is_own || has_approved(entity);
                if is_approved { Ok(true) } else { Err(StartDenied::NotApproved(entity)) }
            }
        };
        for identity in chain.iter().filter(|identity| *identity != requester) {
            check(identity)?;
        }
        if check(requester)? {
            return Ok(());
        }
        if basis.rule.is_some() {
            // The request has used no right of the store, so that only the lists may stand in.
            let service = (wanted.service, self.must_be_named(wanted.service));
            let listed = self.rights.policy.right(requester, service, self.now());
            return listed.map(drop).ok_or(StartDenied::NoLonger);
        }
        if basis.needs_right && self.permission(requester, wanted.service, 1).is_none() {
            return Err(StartDenied::RightEnded);
        }
        Ok(())
    }

    /// The decision of the first rule that matches. The node's own identity has no rules.
    fn rule(&self, identity: &Identity, wanted: &Wanted<'_>) -> Option<Decision> {
        let own = self.identity();
        if *identity == own {
            return None;
        }
        let asked = wanted.asked_by(identity, &own, self.must_be_named(wanted.service));
        self.rights.policy.rule(&asked, self.now())
    }

    /// The permission that `allow`, a group or the store gives `identity` to request a session of
    /// `service` with this number of starts; `None` if it has none.
    fn permission(&self, identity: &Identity, service: &str, starts: u32) -> Option<Permitted> {
        if *identity == self.identity() {
            return Some(Permitted::of_node());
        }
        let by_name = self.must_be_named(service);
        let now = self.now();
        let listed = self.rights.policy.right(identity, (service, by_name), now);
        let request = RightRequest { service, by_name, starts, expires: None };
        let stored = self.rights.store.chosen_right(identity, &request, now);
        let stored = stored.map(|right| {
            let permission = Permission::Right { by_name, starts };
            Permitted { until: right.until, ..Permitted::by(permission, Source::Store(right)) }
        });
        match (listed, stored) {
            (None, stored) => stored,
            // Its own right is used only if it lasts longer than the one by the group.
            (Some(listed), Some(stored))
                if listed.group.is_some() && stored.until > listed.expires =>
            {
                Some(stored)
            }
            (Some(listed), _) => Some(Permitted::by_list(listed)),
        }
    }

    /// The names of the services that `identity` may request.
    pub(crate) fn open_to(&self, identity: &Identity) -> Vec<&str> {
        let names = self.services.keys().map(String::as_str);
        names.filter(|name| self.may_request(identity, name)).collect()
    }

    /// Returns true if a right to every service does not include this one. A shell has all rights
    /// of the node's user, so an invitation without a service must not include it.
    pub(crate) fn must_be_named(&self, service: &str) -> bool {
        self.services.get(service).is_some_and(|offered| offered.description.kind == SHELL)
    }
}
