//! Minting a capability at the node, and delegation by its holder.

use levada_core::{Identity, Params, SecretKey, UnixTime};

use crate::chain::narrow;
use crate::error::GrantError;
use crate::link::LinkError;
use crate::link::{self, LinkBody, Origin, Secret};
use crate::{Capability, Rights, SessionId};

/// The first link for `session` of `node`, encoded, and its secret. `root` never leaves the node.
///
/// # Errors
/// [`LinkError`] if `body` has no uses, no running time or too long parameters.
pub fn mint(
    root: &[u8; 32],
    body: &LinkBody,
    node: Identity,
    session: SessionId,
) -> Result<(Vec<u8>, Secret), LinkError> {
    let bytes = link::encode(body, Some(&Origin { node, session }))?;
    let secret = link::next_secret(root, &bytes);
    Ok((bytes, secret))
}

/// The secret of a first link that [`mint`] made under `root`.
pub fn first_secret(root: &[u8; 32], link: &[u8]) -> Secret {
    link::next_secret(root, link)
}

/// What a delegated link permits: at most what the one before it does.
#[derive(Clone, Debug)]
pub struct Narrowing {
    /// Its rights.
    pub rights: Rights,
    /// When the right to start ends; `None` for no change.
    pub expires: Option<UnixTime>,
    /// How many times it can start the session; `None` for no change.
    pub uses: Option<u32>,
    /// How many seconds one start may run; `None` for no change.
    pub max_run: Option<u64>,
    /// Parameters to add to those that are set.
    pub params: Params,
}

impl Narrowing {
    /// Narrows the rights only.
    pub fn to_rights(rights: Rights) -> Self {
        Self { rights, expires: None, uses: None, max_run: None, params: Params::new() }
    }
}

impl Capability {
    /// Delegates this capability to another identity, without a connection. The result has its own
    /// secret, from which this capability's cannot be derived.
    ///
    /// # Errors
    /// [`GrantError`] for a chain that the node would refuse. Expiry, and checks that need the
    /// node's root secret or database, are not made.
    pub fn grant(
        &self,
        key: &SecretKey,
        to: Identity,
        narrowing: Narrowing,
    ) -> Result<Self, GrantError> {
        if self.holder() != key.identity() {
            return Err(GrantError::NotHolder { holder: self.holder() });
        }
        self.chain.check_signatures()?;
        let body = LinkBody {
            identity: to,
            rights: narrowing.rights,
            expires: narrowing.expires.unwrap_or(self.expires()),
            uses: narrowing.uses.unwrap_or(self.uses()),
            max_run: narrowing.max_run.or(self.max_run()),
            params: narrowing.params,
        };
        let mut params = self.params.clone();
        narrow(self.chain.last_link(), &mut params, &body)?;
        let bytes = link::encode(&body, None)?;
        let secret = link::next_secret(&self.secret, &bytes);
        let mut chain = self.chain.clone();
        chain.push(bytes, body, key)?;
        let service = self.service.clone();
        let addresses = self.addresses.clone();
        Ok(Self { chain, secret, service, addresses, params })
    }
}
