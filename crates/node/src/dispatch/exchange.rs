//! Exchanges tickets: a bearer receives a capability of its own identity for the share that the
//! ticket names.

use std::sync::Arc;

use levada_capability::{SWARM, Ticket, first_secret};
use levada_core::Digest;
use levada_core::wire::{self, Reason, Refusal, answer::Answer};

use crate::store::{ExchangeError, Exchanged, Store, TicketSummary};

use super::admission::peer_grant;
use super::context::{OperationResult, RequestContext};
use super::grant::Grant;
use super::operations::secret_of;
use super::refusal::{check_draining, failed, unknown_secret};

/// How often the capability may start its session: a peer reconnects as often as its network fails.
const USES: u32 = u32::MAX;

impl RequestContext {
    /// Exchanges a ticket. The answer to an unknown secret is the same whether or not this node has
    /// shares.
    pub(super) async fn exchange(self: &Arc<Self>, exchange: wire::Exchange) -> OperationResult {
        let secret = secret_of("a ticket", exchange.secret)?;
        let hash = Ticket::hash(&secret);
        self.check_secret("ticket", &hash).await?;
        check_draining(&self.node)?;
        let permit = self.node.peers.exchanges.permit(self.slot.source).await;
        let _permit = permit.ok_or_else(|| {
            Refusal::new(Reason::Busy, "too many exchanges from this address at a time; try again")
        })?;
        let granted = self.on_store(move |context, store| context.exchange_hash(store, &hash));
        match granted.await {
            Ok(granted) => {
                self.slot.mark_proved(&*self.connection);
                Ok(Answer::Granted(granted))
            }
            Err(ExchangeError::Unknown) => Err(unknown_secret("ticket")),
            Err(known) => Err(refusal(&known)),
        }
    }

    fn exchange_hash(&self, store: &Store, hash: &Digest) -> Result<wire::Granted, ExchangeError> {
        let ticket = store.ticket(hash)?.ok_or(ExchangeError::Unknown)?;
        let grant = self.grant_for(&ticket)?;
        let _ = self.subject.service.set(SWARM.to_owned());
        match store.exchange(hash, &grant.new_session(), self.node.now())? {
            Exchanged::Created => Ok(grant.granted()),
            Exchanged::Again(session, link) => {
                let secret = first_secret(&session.root, &link).to_vec();
                Ok(wire::Granted { link, secret, framing: session.framing.to_string() })
            }
        }
    }

    /// A session of the peer for the ticket's share, which expires with the ticket and cannot be
    /// passed on: the ticket counts identities.
    fn grant_for(&self, ticket: &TicketSummary) -> Result<Grant, ExchangeError> {
        let issuer = (self.node.identity(), self.node.now());
        let content = (&ticket.root, Some(ticket.share));
        let minted = peer_grant(issuer, self.peer, content, (ticket.expires, USES));
        minted.map_err(|refusal| ExchangeError::Failed(refusal.text))
    }
}

fn refusal(error: &ExchangeError) -> Refusal {
    let reason = match error {
        ExchangeError::Bound => Reason::Foreign,
        ExchangeError::Revoked => Reason::Revoked,
        ExchangeError::Expired => Reason::Expired,
        ExchangeError::Exhausted(_) => Reason::UsedUp,
        ExchangeError::Unknown | ExchangeError::Failed(_) | ExchangeError::Store(_) => {
            return failed(error);
        }
    };
    Refusal::new(reason, error.to_string())
}
