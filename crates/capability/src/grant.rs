//! How a capability comes into being, and how its holder passes it on.

use levada_core::{Identity, Params, SecretKey, UnixTime};

use crate::chain::narrow;
use crate::error::{GrantError, LinkError};
use crate::link::{self, LinkBody, Origin, Secret};
use crate::{Capability, Rights, SessionId};

/// The first link for `session` of `node`, encoded, and its secret. `root` stays at the node.
///
/// # Errors
/// [`LinkError`] if `body` has no use, no time or too long parameters.
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

/// What a new link permits, at most what the one before it does.
#[derive(Clone, Debug)]
pub struct Narrowing {
    /// Its rights.
    pub rights: Rights,
    /// When the right to start ends; `None`: as before.
    pub expires: Option<UnixTime>,
    /// How often it can start the session; `None`: as before.
    pub uses: Option<u32>,
    /// For how many seconds one start may run; `None`: as before.
    pub max_run: Option<u64>,
    /// Parameters to fix beside those that are set.
    pub params: Params,
}

impl Narrowing {
    /// These rights and nothing else changed.
    pub fn to_rights(rights: Rights) -> Self {
        Self { rights, expires: None, uses: None, max_run: None, params: Params::new() }
    }
}

impl Capability {
    /// Passes this capability on to another identity. Needs no connection; the result has a
    /// secret of its own, from which this one's cannot be derived.
    ///
    /// # Errors
    /// [`GrantError`] for whatever the node would refuse, apart from what only the node knows and
    /// from an expiry that has passed.
    pub fn grant(
        &self,
        key: &SecretKey,
        to: Identity,
        narrowing: Narrowing,
    ) -> Result<Self, GrantError> {
        if self.holder() != key.identity() {
            return Err(GrantError::NotMine { holder: self.holder() });
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
        let (service, addresses) = (self.service.clone(), self.addresses.clone());
        Ok(Self { chain, secret, service, addresses, params })
    }
}
