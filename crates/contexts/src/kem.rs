//! Sealing of the shares: to a middlebox's one-time key, or under a key that is used once.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use levada_core::{Digest, OpeningKey, Sealed, label, seal as seal_hybrid, sha256};
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as X25519;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey, HpkePublicKey};
use zeroize::Zeroizing;

use super::ContextError;
use super::path::Kem;
use super::schedule::Secret;
use levada_channel::Error;

const INTERNAL: ContextError = ContextError::Tls(Error::Internal("the key encapsulation failed"));
/// Bytes of an AES-256-GCM tag.
const TAG: usize = 16;

impl Kem {
    /// Bytes of a public key.
    pub(crate) fn key_len(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::Hybrid => OpeningKey::PUBLIC_LEN,
        }
    }

    /// Bytes of an encapsulation.
    pub(crate) fn output_len(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::Hybrid => OpeningKey::ENCAPSULATION_LEN,
        }
    }
}

/// The one-time key of a middlebox.
pub(crate) enum OneTimeKey {
    X25519 { public: Vec<u8>, private: HpkePrivateKey },
    Hybrid(Box<OpeningKey>),
}

/// What a share is bound to, besides the key: the transcript, the middlebox, and the header of the
/// frame.
pub(crate) struct Binding<'a> {
    pub(crate) hop: u8,
    pub(crate) th1: &'a Digest,
    pub(crate) header: [u8; 5],
}

impl Binding<'_> {
    fn info(&self) -> Vec<u8> {
        [label::SERVER_SHARE.as_bytes(), &[self.hop], self.th1].concat()
    }

    pub(crate) fn aad(&self) -> [u8; 6] {
        let [a, b, c, d, e] = self.header;
        [a, b, c, d, e, self.hop]
    }

    /// For [`levada_core::seal`], which takes one digest.
    fn context(&self) -> Digest {
        sha256(&[&self.info(), &self.aad()])
    }
}

impl OneTimeKey {
    pub(crate) fn generate(kem: Kem) -> Result<Self, ContextError> {
        #[cfg(test)]
        super::tests::probe::public_key_operation();
        match kem {
            Kem::X25519 => {
                let (public, private) = X25519.generate_key_pair().map_err(|_| INTERNAL)?;
                Ok(Self::X25519 { public: public.0, private })
            }
            Kem::Hybrid => {
                OpeningKey::generate().map(|key| Self::Hybrid(Box::new(key))).map_err(|_| INTERNAL)
            }
        }
    }

    pub(crate) fn public(&self) -> &[u8] {
        match self {
            Self::X25519 { public, .. } => public,
            Self::Hybrid(key) => key.public(),
        }
    }

    /// Opens what [`seal`] made: an encapsulation, then the sealed bytes.
    pub(crate) fn open(
        &self,
        binding: &Binding<'_>,
        output: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, ContextError> {
        #[cfg(test)]
        super::tests::probe::public_key_operation();
        let forged = ContextError::forged("a server's share");
        match self {
            Self::X25519 { private, .. } => {
                let output = EncapsulatedSecret(output.to_vec());
                let opened = X25519.open(&output, &binding.info(), &binding.aad(), sealed, private);
                opened.map(Zeroizing::new).map_err(|_| forged)
            }
            Self::Hybrid(key) => {
                let sealed = Sealed { encapsulation: output.to_vec(), bytes: sealed.to_vec() };
                key.open(&binding.context(), &sealed).map_err(|_| forged)
            }
        }
    }
}

/// Seals `message` to a middlebox's public key: the encapsulation, and the sealed bytes.
pub(crate) fn seal(
    kem: Kem,
    public: &[u8],
    binding: &Binding<'_>,
    message: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), ContextError> {
    #[cfg(test)]
    super::tests::probe::public_key_operation();
    let refused = ContextError::BadKey(binding.hop);
    match kem {
        Kem::X25519 => {
            let public = HpkePublicKey(public.to_vec());
            let sealed = X25519.seal(&binding.info(), &binding.aad(), message, &public);
            sealed.map(|(output, sealed)| (output.0, sealed)).map_err(|_| refused)
        }
        Kem::Hybrid => {
            let sealed = seal_hybrid(public, &binding.context(), message).map_err(|_| refused)?;
            Ok((sealed.encapsulation, sealed.bytes))
        }
    }
}

/// Bytes that [`seal`] adds to a message, besides the encapsulation.
pub(crate) const OVERHEAD: usize = TAG;

/// AES-256-GCM under a key that seals one message, hence with the nonce 0.
pub(crate) fn seal_once(key: &Secret, aad: &[u8], message: &[u8]) -> Result<Vec<u8>, ContextError> {
    // Full capacity: a reallocation would leave a copy of the plaintext in freed memory.
    let mut bytes = Vec::with_capacity(message.len() + TAG);
    bytes.extend_from_slice(message);
    #[cfg(test)]
    super::tests::probe::sealed(key.bytes(), [0; 12]);
    let sealed = once(key)?.seal_in_place_append_tag(nonce(), Aad::from(aad), &mut bytes);
    sealed.map_err(|_| INTERNAL)?;
    Ok(bytes)
}

/// Opens what [`seal_once`] made; None if it was made under another key, or changed.
pub(crate) fn open_once(
    key: &Secret,
    aad: &[u8],
    sealed: &[u8],
) -> Result<Option<Zeroizing<Vec<u8>>>, ContextError> {
    let mut bytes = Zeroizing::new(sealed.to_vec());
    let Ok(opened) = once(key)?.open_in_place(nonce(), Aad::from(aad), &mut bytes) else {
        return Ok(None);
    };
    let length = opened.len();
    bytes.truncate(length);
    Ok(Some(bytes))
}

fn once(key: &Secret) -> Result<LessSafeKey, ContextError> {
    let key = UnboundKey::new(&AES_256_GCM, key.bytes()).map_err(|_| INTERNAL)?;
    Ok(LessSafeKey::new(key))
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_opens_for_its_middlebox_transcript_and_header_only() {
        for kem in [Kem::X25519, Kem::Hybrid] {
            let binding = |hop, byte: u8, last| Binding {
                hop,
                th1: if byte == 1 { &[1; 32] } else { &[2; 32] },
                header: [0x44, 3, 3, 0, last],
            };
            let key = OneTimeKey::generate(kem).unwrap();
            assert_eq!(key.public().len(), kem.key_len());
            let public = key.public().to_vec();
            let (output, sealed) = seal(kem, &public, &binding(1, 1, 9), b"secret").unwrap();
            assert_eq!(output.len(), kem.output_len());
            assert_eq!(sealed.len(), 6 + OVERHEAD);
            assert_eq!(*key.open(&binding(1, 1, 9), &output, &sealed).unwrap(), b"secret");
            for other in [binding(2, 1, 9), binding(1, 2, 9), binding(1, 1, 8)] {
                let key = OneTimeKey::generate(kem).unwrap();
                let public = key.public().to_vec();
                let (output, sealed) = seal(kem, &public, &binding(1, 1, 9), b"secret").unwrap();
                assert!(key.open(&other, &output, &sealed).is_err());
            }
            assert!(seal(kem, &vec![0; kem.key_len()], &binding(1, 1, 9), b"").is_err());
            assert!(seal(kem, &public[1..], &binding(1, 1, 9), b"").is_err());
        }
    }

    #[test]
    fn a_key_used_once_opens_what_it_sealed() {
        let key = Secret::new([3; 32]);
        let sealed = seal_once(&key, b"header", b"halves").unwrap();
        assert_eq!(**open_once(&key, b"header", &sealed).unwrap().unwrap(), *b"halves");
        assert!(open_once(&key, b"headed", &sealed).unwrap().is_none());
        assert!(open_once(&key, b"header", &sealed[1..]).unwrap().is_none());
        assert!(open_once(&Secret::new([4; 32]), b"header", &sealed).unwrap().is_none());
    }
}
