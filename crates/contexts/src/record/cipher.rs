//! The ciphers of records, and their keys.

use aws_lc_rs::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use levada_core::label::derive;
use zeroize::Zeroizing;

use crate::ContextError;
use crate::schedule::{Secret, Tag};
use levada_channel::Error;
use levada_channel::parts::HEADER;

/// Records of one epoch, as a power of two; few in tests, so that they pass many.
const EPOCH: u32 = if cfg!(test) { 4 } else { 20 };
/// The most records of one origin in an epoch.
const MAX_PER_EPOCH: u64 = 1 << 23;

/// Header 5 ‖ n 8 ‖ g 8 ‖ q 8: the additional data of the cipher.
pub(crate) type Meta = [u8; HEADER + 24];

/// The cipher of one context in one direction. Its keys change every 2^20 slots of the context, for
/// all parties at the same record, without a message; each origin has its own.
pub(crate) struct Cipher {
    secret: Secret,
    epoch: u64,
    /// By origin.
    keys: Vec<Option<OriginKey>>,
    aes: bool,
}

struct OriginKey {
    key: LessSafeKey,
    iv: Zeroizing<[u8; 12]>,
    #[cfg(test)]
    bytes: [u8; 32],
    /// Records sealed under this key.
    used: u64,
}

impl Cipher {
    /// From T_0.
    pub(crate) fn new(secret: Secret, aes: bool) -> Self {
        Self { secret, epoch: 0, keys: Vec::new(), aes }
    }

    fn key(&mut self, n: u64, origin: u8) -> Result<&mut OriginKey, ContextError> {
        let epoch = n >> EPOCH;
        while self.epoch < epoch {
            self.secret = self.secret.derive(derive::UPDATE, &[]);
            self.keys.clear();
            self.epoch += 1;
        }
        let at = usize::from(origin);
        if self.keys.len() <= at {
            self.keys.resize_with(at + 1, || None);
        }
        let algorithm = if self.aes { &AES_256_GCM } else { &CHACHA20_POLY1305 };
        let slot = &mut self.keys[at];
        if slot.is_none() {
            let secret = self.secret.derive(derive::KEY, &[&[origin]]);
            let key = UnboundKey::new(algorithm, secret.bytes())
                .map_err(|_| Error::Internal("the cipher rejected its key"))?;
            let iv = Zeroizing::new(self.secret.derive_bytes(derive::IV, &[&[origin]]));
            *slot = Some(OriginKey {
                key: LessSafeKey::new(key),
                iv,
                #[cfg(test)]
                bytes: *secret.bytes(),
                used: 0,
            });
        }
        slot.as_mut().ok_or(Error::Internal("a key that was just made").into())
    }

    pub(super) fn seal(
        &mut self,
        n: u64,
        origin: u8,
        counter: u64,
        meta: &Meta,
        plain: &mut [u8],
    ) -> Result<Tag, ContextError> {
        let key = self.key(n, origin)?;
        key.used += 1;
        if key.used > MAX_PER_EPOCH {
            return Err(ContextError::Flood("records under one key"));
        }
        let nonce = key.nonce(counter);
        #[cfg(test)]
        crate::tests::probe::sealed(&key.bytes, *nonce.as_ref());
        let tag = key.key.seal_in_place_separate_tag(nonce, Aad::from(meta), plain);
        let tag = tag.map_err(|_| Error::Internal("the cipher failed to seal"))?;
        let mut bytes = Tag::default();
        bytes.copy_from_slice(tag.as_ref());
        Ok(bytes)
    }

    /// The plaintext; None if the record was made under another key or for another place, or
    /// changed.
    pub(super) fn open<'a>(
        &mut self,
        n: u64,
        origin: u8,
        counter: u64,
        meta: &Meta,
        sealed: &'a mut [u8],
    ) -> Result<Option<&'a mut [u8]>, ContextError> {
        let key = self.key(n, origin)?;
        key.used += 1;
        if key.used > MAX_PER_EPOCH {
            return Err(ContextError::Flood("records under one key"));
        }
        Ok(key.key.open_in_place(key.nonce(counter), Aad::from(meta), sealed).ok())
    }
}

impl OriginKey {
    /// IV ⊕ counter. An endpoint's counter is the slot; a middlebox's counts its own records and
    /// only grows. Each has a key of its own, so no nonce repeats.
    fn nonce(&self, counter: u64) -> Nonce {
        let mut nonce = *self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_with_the_epoch_and_differ_by_origin() {
        let mut cipher = Cipher::new(Secret::new([7; 32]), true);
        let mut iv = |n, origin| *cipher.key(n, origin).unwrap().iv;
        let last = (1 << EPOCH) - 1;
        assert_eq!(iv(0, 0), iv(last, 0));
        let others = [iv(0, 1), iv(last + 1, 0), iv(last + 1, 1), iv(2 * last + 2, 0)];
        let first = *Cipher::new(Secret::new([7; 32]), true).key(0, 0).unwrap().iv;
        for (at, other) in others.iter().enumerate() {
            assert!(*other != first && !others[..at].contains(other));
        }
        // The old secret is gone.
        assert_ne!(cipher.secret.bytes(), &[7; 32]);
    }

    #[test]
    fn a_key_is_not_used_beyond_its_limit() {
        let mut cipher = Cipher::new(Secret::new([7; 32]), true);
        cipher.key(0, 1).unwrap().used = MAX_PER_EPOCH - 1;
        let meta = [0; HEADER + 24];
        cipher.seal(0, 1, 0, &meta, &mut [0]).unwrap();
        let error = ContextError::Flood("records under one key");
        assert_eq!(cipher.seal(0, 1, 1, &meta, &mut [0]), Err(error.clone()));
        assert_eq!(cipher.open(0, 1, 1, &meta, &mut [0; 17]), Err(error));
        assert!(cipher.seal(1 << EPOCH, 1, 2, &meta, &mut [0]).is_ok());
    }
}
