//! Decides whether a session may start. Every operation that starts a session uses
//! [`RequestContext::admit`].

use std::iter::once;

use levada_capability::{SWARM, Verified};
use levada_core::printable::one_line;
use levada_core::wire::{Reason, Refusal};
use levada_core::{Framing, Identity, Params};
use levada_service::Refused;

use crate::decide::Basis;
use crate::granted::GrantedPath;
use crate::live::{Run, SessionGuard};
use crate::services::Offered;
use crate::store::{DenialReason, NewStart, StartError};
use crate::wanted::Wanted;

use super::context::RequestContext;
use super::refusal::{
    check_draining, failed, no_longer_permitted, revoked, start_denied, unknown_session,
};
use super::verify::denied_capability;

/// The maximum length of a session's summary in the audit log, in bytes.
const MAX_ABOUT: usize = 512;
/// The maximum length of what a session with middleboxes has granted there, in bytes: sixteen
/// middleboxes with rights in four contexts take less.
const MAX_GRANTED: usize = 4096;

/// A requested start: a verified chain, its session, and the run that its parameters ask for.
pub(super) struct Start<R> {
    pub(super) verified: Verified,
    pub(super) service: String,
    /// The identity that requested the session.
    pub(super) requester: Identity,
    /// The right that had permitted it.
    pub(super) basis: Basis,
    /// A summary for the audit log.
    pub(super) about: String,
    /// What the middleboxes of the path were granted; none without a path.
    pub(super) granted: Option<GrantedPath>,
    pub(super) run: R,
}

/// A start that was counted: its service may run.
pub(super) struct Admitted<R> {
    pub(super) start: Start<R>,
    pub(super) guard: SessionGuard,
}

impl RequestContext {
    /// Registers the run, checks every right, and counts the start by `commit`, one transaction
    /// that calls [`Store::start`](crate::store::Store::start) or does the same with further
    /// changes.
    ///
    /// The order matters. A block, succession or revocation is first in effect, in the store's
    /// tables and its lists in memory or in the policy, and then ends the runs that are registered.
    /// So one that takes effect after the registration finds the run and ends it, and the checks,
    /// which follow the registration, find one from before. None is missed. No list, group or rule
    /// changes between its check and the commit.
    pub(super) fn admit<R>(
        &self,
        start: Start<R>,
        commit: impl FnOnce(&NewStart) -> Result<(), StartError>,
    ) -> Result<Admitted<R>, Refusal> {
        let node = &self.node;
        let verified = &start.verified;
        let requester = start.requester;
        let run = Run {
            session: verified.session,
            links: verified.ids.clone(),
            identities: verified.identities.clone(),
            requester,
            holder: verified.holder,
            service: start.service.clone(),
            path: start.granted.clone(),
            is_peer: start.service == SWARM,
        };
        let registered = node.peers.sessions.register(run, &node.identity(), &node.peers.limits);
        let mut guard =
            registered.map_err(|limit| Refusal::new(Reason::Busy, limit.to_string()))?;
        check_draining(node)?;
        let mut keys = verified.identities.iter().copied().chain(once(requester));
        if let Some(identity) = keys.find(|identity| node.rights.policy.blocks(identity)) {
            return Err(denied_capability(DenialReason::Blocked(identity), &requester));
        }
        let _unchanged = node.rights.policy.hold();
        self.check_rights(&start)?;
        let about = match &start.granted {
            Some(granted) => with_granted(&start.about, granted),
            None => start.about.clone(),
        };
        let new = NewStart {
            session: verified.session,
            uses: &verified.uses,
            identities: &verified.identities,
            expires: verified.expires,
            requester,
            by: self.peer,
            about: &about,
        };
        commit(&new).map_err(|error| refusal(error, &requester))?;
        match guard.ended.try_recv() {
            Ok(Reason::Revoked) => Err(revoked()),
            Ok(reason) => Err(Refusal::new(reason, "the session was ended while it started")),
            Err(_) => Ok(Admitted { start, guard }),
        }
    }

    /// Refuses a start that the rules deny, or whose right has ended. The time is stored first if
    /// that right has expired, so that it stays so even if the clock is set back.
    fn check_rights<R>(&self, start: &Start<R>) -> Result<(), Refusal> {
        let node = &self.node;
        let verified = &start.verified;
        let wanted = Wanted {
            service: &start.service,
            params: &verified.params,
            expires: Some(verified.expires),
            uses: verified.uses.first().map_or(1, |(_, uses)| *uses),
        };
        let requester = &start.requester;
        let decided = node.decide_start(requester, &verified.identities, &wanted, start.basis);
        let Err(denied) = decided else { return Ok(()) };
        let now = node.now();
        if node.right_has_expired(requester, &start.service, now) {
            node.rights.store.store_time(now).map_err(|error| failed(&error))?;
        }
        Err(start_denied(node, denied, requester))
    }

    pub(super) fn check_framing(&self, framing: Framing) -> Result<(), Refusal> {
        if self.connection.framing() == framing {
            return Ok(());
        }
        let text = format!("this session needs a connection with framing {framing}");
        Err(Refusal::new(Reason::Framing, text))
    }
}

/// A summary of a session with these parameters for the audit log, on one line.
pub(super) fn about(offered: &Offered, params: &Params) -> String {
    one_line(&offered.service.summary(params).unwrap_or_default(), MAX_ABOUT)
}

/// The summary of a start, and the middleboxes with what was granted to each.
fn with_granted(about: &str, granted: &GrantedPath) -> String {
    let granted = one_line(&granted.to_string(), MAX_GRANTED);
    if about.is_empty() { granted } else { format!("{about}; {granted}") }
}

pub(super) fn refused_params(refused: Refused) -> Refusal {
    Refusal::new(Reason::Parameters, refused.to_string())
}

fn refusal(error: StartError, requester: &Identity) -> Refusal {
    match error {
        StartError::NotPermitted => no_longer_permitted(),
        StartError::UnknownSession => unknown_session(),
        StartError::Terminated => Refusal::new(Reason::Terminated, "the session was terminated"),
        StartError::Revoked(_) => revoked(),
        StartError::UsedUp(_) => Refusal::new(Reason::UsedUp, "the capability is used up"),
        StartError::Expired => Refusal::new(Reason::Expired, "the capability has expired"),
        StartError::Denied(reason) => denied_capability(reason, requester),
        StartError::Store(error) => failed(&error),
    }
}
