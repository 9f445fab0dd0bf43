//! A capability as its holder stores it.

use levada_core::{Identity, Params, UnixTime, wire};
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

use crate::error::CapabilityError;
use crate::link::{LinkBody, Secret};
use crate::present::{self, Operation};
use crate::reader::{are_addresses, is_name};
use crate::rights::Rights;
use crate::{Chain, LinkId, SessionId};

/// Links and signatures, the secret of the last link, and hints where to present them.
///
/// A copy alone is of no use, because the connection must also prove the identity of the last
/// link. The secret is zeroized and not in `Debug` all the same.
#[derive(Clone)]
pub struct Capability {
    pub(crate) chain: Chain,
    pub(crate) secret: Secret,
    pub(crate) service: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) params: Params,
}

impl Capability {
    /// A capability of these parts. Its links must narrow; only the node can verify the signatures
    /// and the secret.
    ///
    /// # Errors
    /// [`CapabilityError::Chain`] if a link is wider than the one before it,
    /// [`CapabilityError::Hints`] if the service name or an address is empty, longer than 255
    /// bytes or has control characters, or if there are more than 8 addresses.
    pub fn new(
        chain: Chain,
        secret: Secret,
        service: String,
        addresses: Vec<String>,
    ) -> Result<Self, CapabilityError> {
        if !is_name(&service) || !are_addresses(&addresses) {
            return Err(CapabilityError::Hints);
        }
        let params = chain.check_narrowing()?;
        Ok(Self { chain, secret, service, addresses, params })
    }

    /// The capability in a node's answer to a request. The caller checks that it is for the
    /// requested node, holder and parameters.
    ///
    /// # Errors
    /// [`CapabilityError`] if the answer is malformed, or as for [`Self::new`].
    pub fn from_granted(
        mut granted: wire::Granted,
        service: String,
        addresses: Vec<String>,
    ) -> Result<Self, CapabilityError> {
        let secret = <[u8; 32]>::try_from(granted.secret.as_slice()).map(Zeroizing::new);
        granted.secret.zeroize();
        let chain = Chain::from_first(granted.link)?;
        Self::new(chain, secret.map_err(|_| CapabilityError::Secret)?, service, addresses)
    }

    /// The message that presents this capability for `operation` on the connection with
    /// this `exporter` (RFC 8446 7.5, `label::EXPORTER`, no context).
    pub fn present(&self, exporter: &[u8; 32], operation: Operation) -> wire::Presentation {
        let proof = present::proof(&self.secret, exporter, operation, &self.chain.last_id());
        wire::Presentation {
            links: self.chain.link_bytes().map(<[u8]>::to_vec).collect(),
            signatures: self.chain.signatures().map(|signature| signature.to_vec()).collect(),
            proof: proof.to_vec(),
            service: String::new(),
        }
    }

    /// The node that it is presented to. Authenticated, other than [`Self::addresses`].
    pub fn node(&self) -> Identity {
        self.chain.node()
    }

    /// The session that it is for.
    pub fn session(&self) -> SessionId {
        self.chain.session()
    }

    /// The identity that may present it.
    pub fn holder(&self) -> Identity {
        self.chain.holder()
    }

    /// What it permits.
    pub fn rights(&self) -> Rights {
        self.chain.last_link().rights
    }

    /// When the right to start ends.
    pub fn expires(&self) -> UnixTime {
        self.chain.last_link().expires
    }

    /// How many times it can start the session.
    pub fn uses(&self) -> u32 {
        self.chain.last_link().uses
    }

    /// How many seconds one start may run; `None` for no limit.
    pub fn max_run(&self) -> Option<u64> {
        self.chain.last_link().max_run
    }

    /// The parameters of all links together.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The id of each link in order.
    pub fn ids(&self) -> Vec<LinkId> {
        self.chain.ids()
    }

    /// The content of each link, in order.
    pub fn links(&self) -> impl Iterator<Item = &LinkBody> {
        self.chain.links()
    }

    /// The links and their signatures.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The name of the service: an unauthenticated hint.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Addresses of the node: unauthenticated hints.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capability")
            .field("node", &self.node())
            .field("session", &self.session())
            .field("service", &self.service)
            .field("addresses", &self.addresses)
            .field("links", &self.chain.links().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
