//! Ed25519 signatures with a label, in the form of TLS 1.3 (RFC 8446 4.4.3), so that a signature made for one purpose
//! does not verify for another.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use thiserror::Error;

use crate::{Identity, SecretKey};

/// An Ed25519 signature.
pub type Signature = [u8; 64];

/// A signature that does not verify.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the signature does not verify")]
pub struct BadSignature;

/// 64 spaces ‖ "levada/1 " ‖ label ‖ 00 ‖ message.
fn signed_bytes(label: &str, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + 10 + label.len() + message.len());
    bytes.extend_from_slice(&[b' '; 64]);
    bytes.extend_from_slice(b"levada/1 ");
    bytes.extend_from_slice(label.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(message);
    bytes
}

impl SecretKey {
    /// Signs `message` for the purpose `label`.
    pub fn sign(&self, label: &str, message: &[u8]) -> Signature {
        self.sign_raw(&signed_bytes(label, message))
    }
}

impl Identity {
    /// Checks a signature made by [`SecretKey::sign`] with the same label and message.
    ///
    /// # Errors
    /// [`BadSignature`] if it is not this identity's signature over them.
    pub fn verify(
        &self,
        label: &str,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), BadSignature> {
        UnparsedPublicKey::new(&ED25519, self.as_bytes())
            .verify(&signed_bytes(label, message), signature)
            .map_err(|_| BadSignature)
    }
}
