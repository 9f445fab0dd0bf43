//! Public-key encryption of one message to a key generated for it, so that a relay can neither read
//! nor change it.
//!
//! X25519 (RFC 7748) and ML-KEM-768 (FIPS 203) are combined, as in the handshake of a channel: a
//! recorded message stays confidential as long as one of the two is unbroken.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, EncapsulationKey, ML_KEM_768};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::{Digest, RandomError, hmac_sha256, label, sha256};

const ML_KEM_KEY: usize = 1184;
const ML_KEM_CIPHERTEXT: usize = 1088;
const TAG: usize = 16;

/// Why a message was not sealed or opened.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum SealError {
    /// The key or the encapsulation is malformed.
    #[error("a key or an encapsulation is malformed")]
    Malformed,
    /// The message was sealed to another key or context, or was changed.
    #[error("it was sealed to another key, or changed on the way")]
    Broken,
}

/// The output of [`seal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The key encapsulation: ML-KEM ciphertext 1088 ‖ X25519 key 32.
    pub encapsulation: Vec<u8>,
    /// The message encrypted with AES-256-GCM, 16 bytes longer than the plaintext.
    pub bytes: Vec<u8>,
}

/// The private key that opens one sealed message. The library clears its memory when it is freed.
pub struct OpeningKey {
    ml_kem: DecapsulationKey,
    x25519: PrivateKey,
    public: Vec<u8>,
}

impl OpeningKey {
    /// The length of [`Self::public`], in bytes.
    pub const PUBLIC_LEN: usize = ML_KEM_KEY + 32;
    /// The length of [`Sealed::encapsulation`], in bytes.
    pub const ENCAPSULATION_LEN: usize = ML_KEM_CIPHERTEXT + 32;

    /// Generates a key.
    ///
    /// # Errors
    /// [`RandomError`] if key generation failed.
    pub fn generate() -> Result<Self, RandomError> {
        let ml_kem = DecapsulationKey::generate(&ML_KEM_768).map_err(|_| RandomError)?;
        let x25519 = PrivateKey::generate(&X25519).map_err(|_| RandomError)?;
        let first = ml_kem.encapsulation_key().and_then(|key| key.key_bytes());
        let first = first.map_err(|_| RandomError)?;
        let second = x25519.compute_public_key().map_err(|_| RandomError)?;
        let public = [first.as_ref(), second.as_ref()].concat();
        Ok(Self { ml_kem, x25519, public })
    }

    /// The public key: ML-KEM key 1184 ‖ X25519 key 32.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Opens a message that [`seal`] made for this key and `context`.
    ///
    /// # Errors
    /// [`SealError`] if it is malformed, made for another key or context, or changed.
    pub fn open(&self, context: &Digest, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let encapsulation = &sealed.encapsulation;
        if encapsulation.len() != Self::ENCAPSULATION_LEN {
            return Err(SealError::Malformed);
        }
        let (ciphertext, point) = encapsulation.split_at(ML_KEM_CIPHERTEXT);
        let first = self.ml_kem.decapsulate(Ciphertext::from(ciphertext));
        let first = first.map_err(|_| SealError::Malformed)?;
        let binding = binding(context, &self.public, encapsulation);
        let key = derive(&self.x25519, point, first.as_ref(), &binding)?;
        let mut bytes = Zeroizing::new(sealed.bytes.clone());
        let opened = key.open_in_place(nonce(), Aad::from(binding), bytes.as_mut_slice());
        let length = opened.map_err(|_| SealError::Broken)?.len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Seals `message` so that it opens only with the private key of `public` and the same `context`.
/// The sender is not authenticated; a caller that needs that signs the result.
///
/// # Errors
/// [`SealError::Malformed`] if `public` is not a valid key.
pub fn seal(public: &[u8], context: &Digest, message: &[u8]) -> Result<Sealed, SealError> {
    let malformed = |_| SealError::Malformed;
    if public.len() != OpeningKey::PUBLIC_LEN {
        return Err(SealError::Malformed);
    }
    let (ml_kem, point) = public.split_at(ML_KEM_KEY);
    let ml_kem = EncapsulationKey::new(&ML_KEM_768, ml_kem).map_err(|_| SealError::Malformed)?;
    let (ciphertext, first) = ml_kem.encapsulate().map_err(malformed)?;
    let x25519 = PrivateKey::generate(&X25519).map_err(malformed)?;
    let own = x25519.compute_public_key().map_err(malformed)?;
    let encapsulation = [ciphertext.as_ref(), own.as_ref()].concat();
    let binding = binding(context, public, &encapsulation);
    let key = derive(&x25519, point, first.as_ref(), &binding)?;
    // Full capacity: a reallocation would leave a copy of the plaintext in freed memory.
    let mut bytes = Vec::with_capacity(message.len() + TAG);
    bytes.extend_from_slice(message);
    key.seal_in_place_append_tag(nonce(), Aad::from(binding), &mut bytes).map_err(malformed)?;
    Ok(Sealed { encapsulation, bytes })
}

/// SHA-256(`label::SEAL` ‖ context 32 ‖ public key 1216 ‖ encapsulation 1120).
fn binding(context: &Digest, public: &[u8], encapsulation: &[u8]) -> Digest {
    sha256(&[label::SEAL.as_bytes(), context, public, encapsulation])
}

/// HKDF with SHA-256 (RFC 5869) of both secrets, ML-KEM's first: the binding is the salt,
/// `label::SEAL_KEY` the info, and the output is one block.
fn derive(
    own: &PrivateKey,
    point: &[u8],
    first: &[u8],
    binding: &Digest,
) -> Result<LessSafeKey, SealError> {
    let point = UnparsedPublicKey::new(&X25519, point);
    agree(own, point, SealError::Malformed, |second| {
        let extracted = Zeroizing::new(hmac_sha256(binding, &[first, second]));
        let info = label::SEAL_KEY.as_bytes();
        let key = Zeroizing::new(hmac_sha256(extracted.as_ref(), &[info, &[1]]));
        let key = UnboundKey::new(&AES_256_GCM, key.as_ref()).map_err(|_| SealError::Malformed)?;
        Ok(LessSafeKey::new(key))
    })
}

/// The nonce is constant because each key seals one message.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: Digest = [7; 32];

    #[test]
    fn opens_only_with_its_key_and_context() {
        let key = OpeningKey::generate().unwrap();
        let sealed = seal(key.public(), &CONTEXT, b"message").unwrap();
        assert_eq!(sealed.bytes.len(), 7 + TAG);
        assert_eq!(key.open(&CONTEXT, &sealed).unwrap().as_slice(), b"message");
        assert_eq!(key.open(&[8; 32], &sealed), Err(SealError::Broken));
        let other = OpeningKey::generate().unwrap();
        assert_eq!(other.open(&CONTEXT, &sealed), Err(SealError::Broken));
        let empty = seal(key.public(), &CONTEXT, b"").unwrap();
        assert!(key.open(&CONTEXT, &empty).unwrap().is_empty());
    }

    #[test]
    fn sealing_twice_gives_different_outputs() {
        let key = OpeningKey::generate().unwrap();
        let [one, two] = [(); 2].map(|()| seal(key.public(), &CONTEXT, b"message").unwrap());
        assert_ne!(one.encapsulation, two.encapsulation);
        assert_ne!(one.bytes, two.bytes);
        let mixed = Sealed { encapsulation: one.encapsulation, bytes: two.bytes };
        assert_eq!(key.open(&CONTEXT, &mixed), Err(SealError::Broken));
    }

    #[test]
    fn rejects_any_changed_byte() {
        let key = OpeningKey::generate().unwrap();
        let sealed = seal(key.public(), &CONTEXT, b"a message of some length").unwrap();
        bolero::check!().with_type::<(bool, usize, u8)>().for_each(|(front, at, change)| {
            let mut changed = sealed.clone();
            let part = if *front { &mut changed.encapsulation } else { &mut changed.bytes };
            let at = at % part.len();
            part[at] ^= change;
            assert_eq!(key.open(&CONTEXT, &changed).is_ok(), *change == 0);
        });
    }

    #[test]
    fn arbitrary_keys_and_seals_never_panic() {
        let key = OpeningKey::generate().unwrap();
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(one, two)| {
            assert!(seal(one, &CONTEXT, two).is_err() || one.len() == OpeningKey::PUBLIC_LEN);
            let sealed = Sealed { encapsulation: one.clone(), bytes: two.clone() };
            assert!(key.open(&CONTEXT, &sealed).is_err());
            let encapsulation = one.iter().copied().chain(std::iter::repeat(0));
            let encapsulation = encapsulation.take(OpeningKey::ENCAPSULATION_LEN).collect();
            assert!(key.open(&CONTEXT, &Sealed { encapsulation, bytes: two.clone() }).is_err());
        });
        let of_length = |byte| seal(&[byte; OpeningKey::PUBLIC_LEN], &CONTEXT, b"");
        // Coefficients not below the modulus (FIPS 203, section 7.2), and a point of small order.
        assert_eq!(of_length(0xff), Err(SealError::Malformed));
        assert_eq!(of_length(0), Err(SealError::Malformed));
    }
}
