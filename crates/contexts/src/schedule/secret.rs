//! Secrets, what is derived from them, and tags.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use levada_core::{Digest, hmac_sha256};
use zeroize::Zeroizing;

/// A tag: HMAC-SHA256, cut to 16 bytes.
pub(crate) type Tag = [u8; 16];

/// A secret from which others are derived.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<Digest>);

impl Secret {
    pub(crate) fn new(bytes: Digest) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn from(bytes: Zeroizing<Digest>) -> Self {
        Self(bytes)
    }

    /// X(self, label, context): HKDF-Expand (RFC 5869 section 2.3) to at most one block, with the
    /// info length 2 ‖ `levada/1 ` ‖ label ‖ 00 ‖ context.
    fn expand(&self, length: u16, label: &str, context: &[&[u8]]) -> Zeroizing<Digest> {
        let [high, low] = length.to_be_bytes();
        let head = [high, low];
        let mut parts: Vec<&[u8]> = vec![&head, b"levada/1 ", label.as_bytes(), &[0]];
        parts.extend_from_slice(context);
        parts.push(&[1]);
        Zeroizing::new(hmac_sha256(self.0.as_ref(), &parts))
    }

    /// X to 32 bytes.
    pub(crate) fn derive(&self, label: &str, context: &[&[u8]]) -> Self {
        Self(self.expand(32, label, context))
    }

    /// X to N bytes, at most 32.
    pub(crate) fn derive_bytes<const N: usize>(&self, label: &str, context: &[&[u8]]) -> [u8; N] {
        const { assert!(N <= 32) };
        let full = self.expand(N as u16, label, context);
        let mut bytes = [0; N];
        bytes.copy_from_slice(&full[..N]);
        bytes
    }

    /// The tag of `parts` under this secret.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> Tag {
        cut(&hmac_sha256(self.0.as_ref(), parts))
    }

    /// Whether `tag` is that of `parts`, in constant time.
    pub(crate) fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        verify_slices_are_equal(&self.tag(parts), tag).is_ok()
    }

    pub(crate) fn bytes(&self) -> &Digest {
        &self.0
    }
}

/// A key for many tags.
pub(crate) struct TagKey(hmac::Key);

impl TagKey {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.bytes()))
    }

    pub(crate) fn tag(&self, message: &[u8]) -> Tag {
        let mut tag = [0; 16];
        tag.copy_from_slice(&hmac::sign(&self.0, message).as_ref()[..16]);
        tag
    }

    /// Whether `tag` is that of `message`, in constant time.
    pub(crate) fn verify(&self, message: &[u8], tag: &[u8]) -> bool {
        verify_slices_are_equal(&self.tag(message), tag).is_ok()
    }
}

fn cut(digest: &Digest) -> Tag {
    let mut tag = [0; 16];
    tag.copy_from_slice(&digest[..16]);
    tag
}

/// HKDF-Extract (RFC 5869 section 2.2) with TH2 as the salt.
pub(super) fn extract(th2: &Digest, first: &Secret, second: &Secret) -> Secret {
    Secret::new(hmac_sha256(th2, &[first.bytes(), second.bytes()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivation_is_hkdf_expand() {
        use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
        struct Length(usize);
        impl aws_lc_rs::hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let secret = Secret::new([7; 32]);
        let prk = Prk::new_less_safe(HKDF_SHA256, &[7; 32]);
        let mut expected = [0; 12];
        let info: &[&[u8]] = &[b"\x00\x0clevada/1 iv\x00\x05"];
        prk.expand(info, Length(12)).unwrap().fill(&mut expected).unwrap();
        assert_eq!(secret.derive_bytes::<12>("iv", &[&[5]]), expected);
    }
}
