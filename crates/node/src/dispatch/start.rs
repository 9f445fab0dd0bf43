//! Whether a session may be started: one function decides, whichever operation asks for it.

use levada_capability::Verified;
use levada_core::wire::{Reason, Refusal};
use levada_core::{Framing, Identity, UnixTime};

use crate::live::{Run, Ticket};
use crate::services::Offered;
use crate::store::{Barred, NewStart, StartError, Store};

use super::grant::about;
use super::operations::{revoked, unknown_service, unknown_session};
use super::{Asker, denied, failed};

/// A start that is asked for: a chain whose signatures and proof hold, and its session.
pub(super) struct Start {
    pub(super) verified: Verified,
    pub(super) service: String,
    pub(super) framing: Framing,
    /// The identity that requested the session.
    pub(super) requester: Identity,
}

/// A start that was counted. Its service may run.
pub(super) struct Admitted<'a> {
    pub(super) offered: &'a Offered,
    pub(super) ticket: Ticket<'a>,
}

impl<'a> Asker<'a> {
    /// Enters the run, checks everything that must hold, and counts the start by `commit`, one transaction that
    /// calls [`Store::start`] or does the same beside other changes.
    ///
    /// The order matters: from the moment that the run is entered, whatever blocks an identity, follows a
    /// succession or revokes a link finds the run and ends it. What was blocked, followed or revoked before that
    /// moment is seen by the checks behind it. So no start slips through between the two.
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
        let entered = node.live.enter(run, &node.identity(), &node.limits);
        let mut ticket = entered.map_err(|limit| Refusal::new(Reason::Busy, limit.to_string()))?;
        let offered =
            node.services.get(&start.service).ok_or_else(|| unknown_service(&start.service))?;
        self.check_framing(start.framing)?;
        offered
            .service
            .check(&start.verified.params, true)
            .map_err(|refused| Refusal::new(Reason::Parameters, refused.to_string()))?;
        let keys = start.verified.identities.iter().chain([&start.requester]);
        if let Some(identity) = keys.copied().find(|identity| node.policy.blocks(identity)) {
            return Err(barred(Barred::Blocked(identity), &start.requester));
        }
        self.commit(start, about(offered, &start.verified.params), commit).await?;
        match ticket.ended.try_recv() {
            Ok(Reason::Revoked) => Err(revoked()),
            Ok(reason) => Err(Refusal::new(reason, "the session was ended while it started")),
            Err(_) => Ok(Admitted { offered, ticket }),
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
        StartError::Barred(found) => barred(found, requester),
        StartError::Store(error) => failed(&error),
    }
}

/// The refusal of a capability with a key that may do nothing any more.
pub(super) fn barred(barred: Barred, requester: &Identity) -> Refusal {
    match barred {
        Barred::Blocked(identity) if identity == *requester => {
            denied("the session was requested by an identity that is blocked")
        }
        Barred::Blocked(_) => denied("the capability was passed on by an identity that is blocked"),
        Barred::Dead(key) => {
            let text = format!("the capability was revoked: the key {key} was rotated away");
            Refusal::new(Reason::Revoked, text)
        }
    }
}
