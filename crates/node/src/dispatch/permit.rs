//! The right that permits a request, and the approval that a rule demands for it.

use levada_core::printable::one_line;
use levada_core::wire::{self, Reason, Refusal};
use levada_core::{Identity, MAX_NAME, UnixTime};

use crate::decide::{Permitted, Ruling};
use crate::store::Permission;
use crate::wanted::Wanted;

use super::context::RequestContext;
use super::grant::Grant;
use super::refusal::{
    ask_for_another, check_draining, denied, denied_by_rule, no_longer_permitted, no_rule_permits,
    not_open, rules_changed,
};
use super::requested::{holder, requested_params, starts};

impl RequestContext {
    /// The right that permits a request, and the entity that a rule asks for its approval.
    pub(super) fn decide(
        &self,
        request: &wire::Request,
    ) -> Result<(Permitted, Option<Identity>), Refusal> {
        let holder = holder(request, self.peer)?;
        let params = requested_params(request)?;
        let wanted = Wanted {
            service: &request.service,
            params: &params,
            expires: (request.expires != 0).then_some(UnixTime(request.expires)),
            uses: starts(request),
        };
        match self.node.decide_request(&self.peer, &holder, &wanted) {
            Ruling::Permitted(permitted) => Ok((permitted, None)),
            Ruling::Ask(entity, permitted) => Ok((permitted, Some(entity))),
            Ruling::Denied(place) => Err(denied_by_rule(&place)),
            Ruling::AskForAnother(entity) => Err(ask_for_another(&self.node, &entity)),
            Ruling::NoRight => {
                let name = one_line(&request.service, MAX_NAME);
                if self.node.may_request(&self.peer, &request.service) {
                    return Err(no_rule_permits(&name));
                }
                Err(not_open(&name, &self.node.open_to(&self.peer)))
            }
        }
    }

    /// Asks the entity that a rule names, if it names one, before the session is created. Rights
    /// and rules may change while it decides, so they are checked again.
    pub(super) async fn obtain_approval(&self, grant: &mut Grant) -> Result<(), Refusal> {
        let Some(entity) = grant.asks else { return Ok(()) };
        self.ask(entity, grant).await?;
        check_draining(&self.node)?;
        if let Some(text) = self.node.denial_reason(&self.peer) {
            return Err(denied(text));
        }
        self.confirm(grant)?;
        let approved = format!("approved by {}", self.node.shown_name(&entity));
        let separator = if grant.about.is_empty() { "" } else { "; " };
        grant.about += &format!("{separator}{approved}");
        grant.now = self.node.now();
        if grant.body.expires <= grant.now {
            return Err(Refusal::new(Reason::Expired, "the requested expiry has passed"));
        }
        Ok(())
    }

    /// Checks again that a right permits the session, and without a further approval. The store
    /// checks its own rights when it creates the session.
    pub(super) fn confirm(&self, grant: &mut Grant) -> Result<(), Refusal> {
        match self.node.decide_request(&self.peer, &grant.body.identity, &grant.wanted()) {
            Ruling::Ask(entity, _) if Some(entity) == grant.asks => {}
            Ruling::Permitted(permitted) if grant.body.expires <= permitted.until => {
                grant.permission = permitted.permission;
            }
            Ruling::Denied(place) => return Err(denied_by_rule(&place)),
            Ruling::Permitted(_) | Ruling::Ask(..) | Ruling::AskForAnother(_) => {
                return Err(rules_changed());
            }
            Ruling::NoRight if matches!(grant.permission, Permission::Right { .. }) => {}
            Ruling::NoRight => return Err(no_longer_permitted()),
        }
        Ok(())
    }
}
