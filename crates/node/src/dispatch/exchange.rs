//! Exchanges tickets: a bearer receives a capability of its own identity for the share that the ticket names.

use std::sync::Arc;

use levada_capability::{LinkBody, Rights, SWARM, Ticket, first_secret};
use levada_core::wire::{self, Reason, Refusal, answer::Answer};
use levada_core::{Digest, Framing, Params};

use crate::store::{ExchangeError, Exchanged, Store, TicketSummary};

use super::grant::Grant;
use super::operations::secret_of;
use super::{OperationResult, RequestContext, denied, failed};

/// How often the capability may start its session: a peer reconnects as often as its network fails.
const USES: u32 = u32::MAX;

impl RequestContext {
    /// Exchanges a ticket. The answer to an unknown secret is the same whether or not this node has shares.
    pub(super) async fn exchange(self: &Arc<Self>, exchange: wire::Exchange) -> OperationResult {
        let delay = self.count_guess("tickets")?;
        let secret = secret_of("a ticket", exchange.secret)?;
        let hash = Ticket::hash(&secret);
        let granted = self.on_store(move |context, store| context.exchange_hash(store, &hash));
        match granted.await {
            Ok(granted) => {
                self.node.attempts.reset(self.slot.source);
                self.slot.mark_proved(&self.connection);
                Ok(Answer::Granted(granted))
            }
            Err(ExchangeError::Unknown) => {
                tokio::time::sleep(delay).await;
                Err(denied("this node has not issued this ticket"))
            }
            Err(known) => {
                // The secret is that of a ticket, so it was not guessed.
                self.node.attempts.uncount(self.slot.source);
                Err(refusal(&known))
            }
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

    /// A session of the peer for the ticket's share, which expires with the ticket and cannot be passed on: the ticket counts
    /// identities.
    fn grant_for(&self, ticket: &TicketSummary) -> Result<Grant, ExchangeError> {
        let framing = Framing::default();
        let mut params = Params::new();
        let added = params
            .add(Params::FRAMING, framing.to_string().into_bytes())
            .and_then(|()| params.add(Params::ROOT, ticket.root.to_vec()));
        added.map_err(|error| ExchangeError::Failed(error.to_string()))?;
        let body = LinkBody {
            identity: self.peer,
            rights: Rights::EXECUTE,
            expires: ticket.expires,
            uses: USES,
            max_run: None,
            params,
        };
        let minted = Grant::mint(&self.node, SWARM, framing, self.peer, body);
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
