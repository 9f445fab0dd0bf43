//! Decides whether a session may start. Every operation that starts a session uses [`RequestContext::admit`].

use levada_capability::Verified;
use levada_core::wire::{Reason, Refusal};
use levada_core::{Framing, Identity, UnixTime};

use crate::live::{Run, SessionGuard};
use crate::services::Offered;
use crate::store::{DenialReason, NewStart, StartError, Store};

use super::grant::about;
use super::operations::{revoked, unknown_service, unknown_session};
use super::{RequestContext, denied, failed};

/// A requested start: a verified chain, and its session.
pub(super) struct Start {
    pub(super) verified: Verified,
    pub(super) service: String,
    pub(super) framing: Framing,
    /// The identity that requested the session.
    pub(super) requester: Identity,
}

/// A start that was counted: its service may run.
pub(super) struct Admitted<'a> {
    pub(super) offered: &'a Offered,
    pub(super) guard: SessionGuard<'a>,
}

impl<'a> RequestContext<'a> {
    /// Registers the run, checks every condition, and counts the start by `commit`, one transaction that calls
    /// [`Store::start`] or does the same with further changes.
    ///
    /// The order matters. A block, succession or revocation after the registration finds the run and ends it. The checks
    /// find one from before the registration. So none is missed.
    pub(super) async fn admit(
        &self,
        start: &Start,
        commit: impl FnOnce(&Store, &NewStart, UnixTime) -> Result<(), StartError> + Send + 'static,
    ) -> Result<Admitted<'a>, Refusal> {
        let node = self.node;
        let run = Run {
            session: start.verified.session,
            links: start.verified.ids.clone(),
            identities: start.verified.identities.clone(),
            requester: start.requester,
            holder: start.verified.holder,
        };
        let registered = node.sessions.register(run, &node.identity(), &node.limits);
        let mut guard =
            registered.map_err(|limit| Refusal::new(Reason::Busy, limit.to_string()))?;
        let offered =
            node.services.get(&start.service).ok_or_else(|| unknown_service(&start.service))?;
        self.check_framing(start.framing)?;
        offered
            .service
            .check(&start.verified.params, true)
            .map_err(|refused| Refusal::new(Reason::Parameters, refused.to_string()))?;
        let keys = start.verified.identities.iter().chain([&start.requester]);
        if let Some(identity) = keys.copied().find(|identity| node.policy.blocks(identity)) {
            return Err(denied_capability(DenialReason::Blocked(identity), &start.requester));
        }
        self.commit(start, about(offered, &start.verified.params), commit).await?;
        match guard.ended.try_recv() {
            Ok(Reason::Revoked) => Err(revoked()),
            Ok(reason) => Err(Refusal::new(reason, "the session was ended while it started")),
            Err(_) => Ok(Admitted { offered, guard }),
        }
    }

    async fn commit(
        &self,
        start: &Start,
        about: String,
        commit: impl FnOnce(&Store, &NewStart, UnixTime) -> Result<(), StartError> + Send + 'static,
    ) -> Result<(), Refusal> {
        let now = self.now().await?;
        let (by, verified, requester) = (self.peer, start.verified.clone(), start.requester);
        let committed = self.node.with_store(move |store| {
            let start = NewStart {
                session: verified.session,
                uses: &verified.uses,
                identities: &verified.identities,
                expires: verified.expires,
                requester,
                by,
                about: &about,
            };
            commit(store, &start, now)
        });
        committed.await.map_err(|error| refusal(error, &start.requester))
    }

    fn check_framing(&self, framing: Framing) -> Result<(), Refusal> {
        if self.connection.framing() == framing {
            return Ok(());
        }
        let text = format!("this session needs a connection with framing {framing}");
        Err(Refusal::new(Reason::Framing, text))
    }
}

fn refusal(error: StartError, requester: &Identity) -> Refusal {
    match error {
        StartError::UnknownSession => unknown_session(),
        StartError::Terminated => Refusal::new(Reason::Terminated, "the session was terminated"),
        StartError::Revoked(_) => revoked(),
        StartError::UsedUp(_) => Refusal::new(Reason::UsedUp, "the capability is used up"),
        StartError::Expired => Refusal::new(Reason::Expired, "the capability has expired"),
        StartError::Denied(reason) => denied_capability(reason, requester),
        StartError::Store(error) => failed(&error),
    }
}

/// The refusal of a capability with a key that is blocked or was rotated.
pub(super) fn denied_capability(reason: DenialReason, requester: &Identity) -> Refusal {
    match reason {
        DenialReason::Blocked(identity) if identity == *requester => {
            denied("the session was requested by an identity that is blocked")
        }
        DenialReason::Blocked(_) => {
            denied("the capability was passed on by an identity that is blocked")
        }
        DenialReason::Rotated(key) => {
            let text = format!("the capability was revoked: the key {key} was rotated away");
            Refusal::new(Reason::Revoked, text)
        }
    }
}
