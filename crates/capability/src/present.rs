//! A capability on the wire: a proof replaces the secret.
//!
//! The proof is bound to the connection by its TLS exporter and to the operation, so that it is
//! invalid on any other connection and for any other operation.

use levada_core::{Digest, hmac_sha256, label, wire};

use crate::error::VerifyError;
use crate::rights::Rights;
use crate::{Chain, LinkId, SessionId};

/// The operation that a capability is presented for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Start the session and attach to it.
    Connect,
    /// End the session.
    Terminate,
    /// Revoke the last link and all derived from it.
    Revoke,
}

impl Operation {
    /// The name in the proof.
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

/// A presented capability, well-formed and not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    pub(crate) chain: Chain,
    pub(crate) proof: Digest,
}

impl Presented {
    /// Decodes a presentation. Checks only its form.
    ///
    /// # Errors
    /// [`VerifyError::Malformed`], or [`VerifyError::Chain`] with an error of [`Chain::decode`].
    pub fn decode(presentation: wire::Presentation) -> Result<Self, VerifyError> {
        let chain = Chain::decode(presentation.links, &presentation.signatures)?;
        let proof =
            Digest::try_from(presentation.proof.as_slice()).map_err(|_| VerifyError::Malformed)?;
        Ok(Self { chain, proof })
    }

    /// The session whose root secret [`crate::verify`] needs.
    pub fn session(&self) -> SessionId {
        self.chain.session()
    }

    /// The links, which are untrusted until [`crate::verify`] succeeds.
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
