//! Verification of a presented capability by the node, which has the session's root secret.
//!
//! Checks that need the node's database are not made here: whether a link was revoked or used up,
//! whether the session was terminated, and whether a key of the chain was replaced by rotation.

use levada_core::{Identity, Params, UnixTime};
use subtle::ConstantTimeEq;

use crate::error::VerifyError;
use crate::present::{self, Operation, Presented};
use crate::rights::Rights;
use crate::{Chain, LinkId, SessionId};

/// The connection, operation and time of a presentation.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The verifying node.
    pub node: Identity,
    /// The identity that the handshake of this connection proved.
    pub peer: Identity,
    /// The exporter of this connection (RFC 8446 7.5, `label::EXPORTER`, no context).
    pub exporter: &'a [u8; 32],
    /// What the capability is presented for.
    pub operation: Operation,
    /// The current time.
    pub now: UnixTime,
}

/// The content of a verified capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The session that it is for.
    pub session: SessionId,
    /// The id of each link in order. The caller checks that none is revoked.
    pub ids: Vec<LinkId>,
    /// The identity of each link in order. The caller checks that none was replaced by rotation.
    pub identities: Vec<Identity>,
    /// Most starts through each link and all after it.
    pub uses: Vec<(LinkId, u32)>,
    /// The identity of the last link.
    pub holder: Identity,
    /// The rights of the last link.
    pub rights: Rights,
    /// When the right to start ends.
    pub expires: UnixTime,
    /// How many seconds this start may run; `None` for no limit.
    pub max_run: Option<u64>,
    /// The parameters of all links together.
    pub params: Params,
}

/// Checks `presented` against the session's `root` secret. Cheap checks run first, and no
/// signature is verified before the proof has shown that the links derive from `root`.
///
/// # Errors
/// [`VerifyError`] names the check that failed.
pub fn verify(
    presented: &Presented,
    root: &[u8; 32],
    context: &Context<'_>,
) -> Result<Verified, VerifyError> {
    let chain = &presented.chain;
    if chain.node() != context.node {
        return Err(VerifyError::Foreign);
    }
    check_peer(chain, context)?;
    check_proof(presented, root, context)?;
    chain.check_signatures()?;
    let params = chain.check_narrowing()?;
    check_permission(chain, context)?;
    Ok(verified(chain, params))
}

/// Only the holder of the last link may start or end a session. Any identity of the chain, and the
/// node, may revoke.
fn check_peer(chain: &Chain, context: &Context<'_>) -> Result<(), VerifyError> {
    let peer = context.peer;
    let permitted = match context.operation {
        Operation::Connect | Operation::Terminate => chain.holder() == peer,
        Operation::Revoke => {
            peer == context.node || chain.links().any(|link| link.identity == peer)
        }
    };
    if permitted { Ok(()) } else { Err(VerifyError::NotHolder) }
}

fn check_proof(
    presented: &Presented,
    root: &[u8; 32],
    context: &Context<'_>,
) -> Result<(), VerifyError> {
    let chain = &presented.chain;
    let secret = chain.secret(root);
    let expected = present::proof(&secret, context.exporter, context.operation, &chain.last_id());
    if bool::from(expected.ct_eq(&presented.proof)) { Ok(()) } else { Err(VerifyError::Forged) }
}

fn check_permission(chain: &Chain, context: &Context<'_>) -> Result<(), VerifyError> {
    let last = chain.last_link();
    if let Some(right) = context.operation.right()
        && !last.rights.contains(right)
    {
        return Err(VerifyError::Right(right));
    }
    // Expiry ends only the right to start; `max_run` limits how long a start may run.
    if context.operation == Operation::Connect && last.expired(context.now) {
        return Err(VerifyError::Expired(last.expires));
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
