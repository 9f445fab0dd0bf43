//! Identities: Ed25519 key pairs, named by their public key.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::signature::signed_bytes;
use crate::{BadSignature, Random, RandomError, Signature, TextError, decode_text, encode_text};

const PREFIX: &str = "lv";
const KEY_LEN: usize = 32;

/// Why bytes or text are not an identity.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum IdentityError {
    /// The text form is wrong.
    #[error("not an identity: {0}")]
    Text(#[from] TextError),
    /// Not 32 bytes.
    #[error("not an identity: a public key has 32 bytes")]
    Length,
}

/// An Ed25519 public key, which names its owner. Written as `lv` and base32 with a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity([u8; KEY_LEN]);

impl Identity {
    /// The identity with this Ed25519 public key (RFC 8032). If the bytes are not a curve point, no
    /// signature verifies.
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The Ed25519 public key.
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// The prefix and the first 8 characters (40 bits): for display only, because a key with the
    /// same 40 bits can be found by search.
    pub fn short(&self) -> String {
        self.to_string().chars().take(PREFIX.len() + 8).collect()
    }

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

impl TryFrom<&[u8]> for Identity {
    type Error = IdentityError;

    fn try_from(bytes: &[u8]) -> Result<Self, IdentityError> {
        bytes.try_into().map(Self).map_err(|_| IdentityError::Length)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode_text(PREFIX, &self.0))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        Self::try_from(decode_text(PREFIX, text, KEY_LEN)?.as_slice())
    }
}

/// The private key of an identity. Zeroized when dropped; not in `Debug` output.
pub struct SecretKey {
    seed: Zeroizing<[u8; 32]>,
    pair: Ed25519KeyPair,
    identity: Identity,
}

impl SecretKey {
    /// Generates a key.
    ///
    /// # Errors
    /// [`RandomError`] if the random source failed.
    pub fn generate(random: &dyn Random) -> Result<Self, RandomError> {
        let mut seed = Zeroizing::new([0; 32]);
        random.fill(seed.as_mut())?;
        Self::from_seed(seed).map_err(|_| RandomError)
    }

    /// The identity with this seed (the 32-byte private key of RFC 8032).
    ///
    /// # Errors
    /// [`IdentityError::Length`] if the library refuses the seed; every 32 bytes are valid.
    pub fn from_seed(seed: Zeroizing<[u8; 32]>) -> Result<Self, IdentityError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.as_ref())
            .map_err(|_| IdentityError::Length)?;
        let identity = Identity::try_from(pair.public_key().as_ref())?;
        Ok(Self { seed, pair, identity })
    }

    /// The public key.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The secret bytes, for storing the key and for TLS.
    pub fn seed(&self) -> &Zeroizing<[u8; 32]> {
        &self.seed
    }

    /// Signs `message` for the purpose `label`.
    pub fn sign(&self, label: &str, message: &[u8]) -> Signature {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(&signed_bytes(label, message)).as_ref());
        signature
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;

    #[test]
    fn seed_of_rfc_8032_test_1_gives_its_public_key() {
        let seed = [
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec,
            0x2c, 0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03,
            0x1c, 0xae, 0x7f, 0x60,
        ];
        let key = SecretKey::from_seed(Zeroizing::new(seed)).unwrap();
        assert_eq!(key.identity().as_bytes()[..4], [0xd7, 0x5a, 0x98, 0x01]);
    }

    #[test]
    fn signature_holds_for_its_label_message_and_key_only() {
        let key = SecretKey::generate(&SystemRandom).unwrap();
        let other = SecretKey::generate(&SystemRandom).unwrap();
        let signature = key.sign("link", b"message");
        assert!(key.identity().verify("link", b"message", &signature).is_ok());
        assert!(key.identity().verify("linn", b"message", &signature).is_err());
        assert!(key.identity().verify("link", b"massage", &signature).is_err());
        assert!(other.identity().verify("link", b"message", &signature).is_err());
    }

    #[test]
    fn text_round_trips_and_debug_shows_no_secret() {
        let key = SecretKey::generate(&SystemRandom).unwrap();
        let text = key.identity().to_string();
        assert_eq!(text.parse::<Identity>(), Ok(key.identity()));
        assert!(text.to_uppercase().parse::<Identity>().is_err());
        assert_eq!(format!("{key:?}"), format!("SecretKey({text})"));
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(identity) = text.parse::<Identity>() {
                assert_eq!(&identity.to_string(), text);
            }
        });
    }
}
