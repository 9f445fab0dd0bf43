//! A capability on the wire: a proof stands in the place of the secret.
//!
//! The proof is bound to the connection by its TLS exporter and to the operation, so that it is
//! worth nothing anywhere else.

use levada_core::{Digest, hmac_sha256, label, wire};

use crate::error::Refused;
use crate::rights::Rights;
use crate::{Chain, LinkId, SessionId};

/// What a capability is presented for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// To start the session and attach to it.
    Connect,
    /// To end the session.
    Terminate,
    /// To revoke the last link and all derived from it.
    Revoke,
}

impl Operation {
    /// The name that goes into the proof.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Terminate => "terminate",
            Self::Revoke => "revoke",
        }
    }

    /// The right that the last link must carry; revoking needs none.
    pub const fn right(self) -> Option<Rights> {
        match self {
            Self::Connect => Some(Rights::EXECUTE),
            Self::Terminate => Some(Rights::TERMINATE),
            Self::Revoke => None,
        }
    }
}

/// A presented capability, well-formed and not verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    pub(crate) chain: Chain,
    pub(crate) proof: Digest,
}

impl Presented {
    /// Reads a presentation. Only its form is checked.
    ///
    /// # Errors
    /// [`Refused::Malformed`], or [`Refused::Chain`] with an error of [`Chain::decode`].
    pub fn decode(presentation: wire::Presentation) -> Result<Self, Refused> {
        let chain = Chain::decode(presentation.links, &presentation.signatures)?;
        let proof =
            Digest::try_from(presentation.proof.as_slice()).map_err(|_| Refused::Malformed)?;
        Ok(Self { chain, proof })
    }

    /// The session whose root secret [`crate::verify`] needs.
    pub fn session(&self) -> SessionId {
        self.chain.session()
    }

    /// The links; what they say is not to be believed before [`crate::verify`] succeeded.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }
}

/// HMAC(last secret, `label::PROOF` ‖ exporter 32 ‖ operation ‖ last link id 32).
pub(crate) fn proof(
    secret: &[u8; 32],
    exporter: &[u8; 32],
    operation: Operation,
    link: &LinkId,
) -> Digest {
    let operation = operation.as_str().as_bytes();
    hmac_sha256(secret, &[label::PROOF.as_bytes(), exporter, operation, link.as_bytes()])
}
