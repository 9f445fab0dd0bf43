//! Ed25519 signatures with a label, in the form of TLS 1.3 (RFC 8446 4.4.3), so that a signature
//! made for one purpose does not verify for another.

use thiserror::Error;

/// An Ed25519 signature.
pub type Signature = [u8; 64];

/// A signature that does not verify.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the signature does not verify")]
pub struct BadSignature;

/// 64 spaces ‖ "levada/1 " ‖ label ‖ 00 ‖ message.
pub(crate) fn signed_bytes(label: &str, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + 10 + label.len() + message.len());
    bytes.extend_from_slice(&[b' '; 64]);
    bytes.extend_from_slice(b"levada/1 ");
    bytes.extend_from_slice(label.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(message);
    bytes
}
