//! SHA-256 and HMAC-SHA256 over several parts, without copying them into one buffer.

use aws_lc_rs::{digest, hmac};

/// A SHA-256 value or an HMAC-SHA256 tag.
pub type Digest = [u8; 32];

/// SHA-256 over the concatenation of `parts`. Injective only if their lengths are fixed or encoded.
pub fn sha256(parts: &[&[u8]]) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// Incremental SHA-256.
pub struct Hasher(digest::Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }
}

impl Hasher {
    /// Appends `bytes` to the input.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of the whole input.
    pub fn finish(self) -> Digest {
        let mut out = [0; 32];
        out.copy_from_slice(self.0.finish().as_ref());
        out
    }
}

/// HMAC-SHA256 (RFC 2104) under `key` over the concatenation of `parts`.
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Digest {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    for part in parts {
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.sign().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incremental_digest_equals_digest_of_the_whole() {
        let mut hasher = Hasher::default();
        hasher.update(b"one");
        hasher.update(b"two");
        assert_eq!(hasher.finish(), sha256(&[b"onetwo"]));
    }

    #[test]
    fn hmac_matches_rfc_4231_case_2() {
        let tag = hmac_sha256(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(tag[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        assert_eq!(tag[28..], [0x64, 0xec, 0x38, 0x43]);
    }
}
