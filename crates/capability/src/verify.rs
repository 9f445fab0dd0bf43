//! Whether a presented capability holds. Only the node that keeps the session's root can tell.
//!
//! Not decided here, because it needs the node's memory: whether a link was revoked or used up,
//! whether the session was terminated, and whether an identity of the chain was rotated away.

use levada_core::{Identity, Params, UnixTime};
use subtle::ConstantTimeEq;

use crate::error::Refused;
use crate::present::{self, Operation, Presented};
use crate::rights::Rights;
use crate::{Chain, LinkId, SessionId};

/// Where and when a capability is presented.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The node that verifies.
    pub node: Identity,
    /// The identity that the handshake of this connection proved.
    pub peer: Identity,
    /// The exporter of this connection (RFC 8446 7.5, `label::EXPORTER`, no context).
    pub exporter: &'a [u8; 32],
    /// What the capability is presented for.
    pub operation: Operation,
    /// The present time.
    pub now: UnixTime,
}

/// What a capability that holds says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The session that it is for.
    pub session: SessionId,
    /// The id of each link in order: none of them may be revoked.
    pub ids: Vec<LinkId>,
    /// The identity of each link in order: none of them may be rotated away.
    pub identities: Vec<Identity>,
    /// Most starts through each link, and through all behind it.
    pub uses: Vec<(LinkId, u32)>,
    /// Who holds the last link.
    pub holder: Identity,
    /// The rights of the last link.
    pub rights: Rights,
    /// When the right to start ends.
    pub expires: UnixTime,
    /// For how many seconds this start may run; `None`: no link says.
    pub max_run: Option<u64>,
    /// The parameters of all links together.
    pub params: Params,
}

/// Checks `presented` against the session's `root` secret. Cheap checks stand before dear ones,
/// and no signature is looked at before the proof has shown that the links come from `root`.
///
/// # Errors
/// [`Refused`] says why it does not hold.
pub fn verify(
    presented: &Presented,
    root: &[u8; 32],
    context: &Context<'_>,
) -> Result<Verified, Refused> {
    let chain = &presented.chain;
    if chain.node() != context.node {
        return Err(Refused::Foreign);
    }
    check_peer(chain, context)?;
    check_proof(presented, root, context)?;
    chain.check_signatures()?;
    let params = chain.check_narrowing()?;
    check_permission(chain, context)?;
    Ok(verified(chain, params))
}

/// Who starts or ends a session must hold the last link. To revoke it suffices to be anywhere on
/// the chain, or to be the node.
fn check_peer(chain: &Chain, context: &Context<'_>) -> Result<(), Refused> {
    let peer = context.peer;
    let permitted = match context.operation {
        Operation::Connect | Operation::Terminate => chain.holder() == peer,
        Operation::Revoke => {
            peer == context.node || chain.links().any(|link| link.identity == peer)
        }
    };
    if permitted { Ok(()) } else { Err(Refused::NotHolder) }
}

fn check_proof(
    presented: &Presented,
    root: &[u8; 32],
    context: &Context<'_>,
) -> Result<(), Refused> {
    let chain = &presented.chain;
    let secret = chain.secret(root);
    let expected = present::proof(&secret, context.exporter, context.operation, &chain.last_id());
    if bool::from(expected.ct_eq(&presented.proof)) { Ok(()) } else { Err(Refused::Forged) }
}

fn check_permission(chain: &Chain, context: &Context<'_>) -> Result<(), Refused> {
    let last = chain.last_link();
    if let Some(right) = context.operation.right()
        && !last.rights.contains(right)
    {
        return Err(Refused::Right(right));
    }
    // Expiry ends the right to start; how long a start may run is said by `max_run`.
    if context.operation == Operation::Connect && last.expired(context.now) {
        return Err(Refused::Expired(last.expires));
    }
    Ok(())
}

fn verified(chain: &Chain, params: Params) -> Verified {
    let ids = chain.ids();
    let last = chain.last_link();
    Verified {
        session: chain.session(),
        uses: ids.iter().copied().zip(chain.links().map(|link| link.uses)).collect(),
        ids,
        identities: chain.identities(),
        holder: last.identity,
        rights: last.rights,
        expires: last.expires,
        max_run: last.max_run,
        params,
    }
}
