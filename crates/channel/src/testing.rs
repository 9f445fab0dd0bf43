//! Raw public keys (RFC 7250) for an unmodified rustls peer, in tests and experiments.
//!
//! It shares no code with this crate's own verifier, so that interoperability tests check that one
//! too.

use std::sync::Arc;

use levada_core::{Identity, SecretKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme};

/// Verifies the raw public key of a server or of a client.
#[derive(Debug)]
pub struct RawKeyVerifier(Option<Identity>);

impl RawKeyVerifier {
    /// Accepts any Ed25519 key whose owner signs the handshake.
    pub fn any() -> Arc<Self> {
        Arc::new(Self(None))
    }

    /// Accepts the key of `expected` only.
    pub fn only(expected: Identity) -> Arc<Self> {
        Arc::new(Self(Some(expected)))
    }

    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        match &self.0 {
            // The key is the last part of its SubjectPublicKeyInfo of 44 bytes (RFC 8410 section
            // 4).
            Some(expected)
                if presented.len() != 44 || !presented.ends_with(expected.as_bytes()) =>
            {
                Err(Error::General("another key than the expected one".into()))
            }
            _ => Ok(()),
        }
    }
}

/// `key` with its raw public key, for a resolver of rustls.
///
/// # Errors
/// rustls' own, if it rejects the key.
pub fn certified_key(key: &SecretKey) -> Result<Arc<CertifiedKey>, Error> {
    /// PKCS #8 around an Ed25519 seed (RFC 8410 section 7).
    const PREFIX: [u8; 16] =
        [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let pkcs8 = [&PREFIX[..], key.seed().as_slice()].concat();
    let signer = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))?;
    let public = signer.public_key().ok_or(Error::General("a signer without a key".into()))?;
    let public = CertificateDer::from(public.to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], signer)))
}

fn verify(
    message: &[u8],
    key: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signed, &algorithms)
}

/// The methods that the traits of both roles have in common.
macro_rules! tls13_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(PeerIncompatible::Tls13RequiredForQuic.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify(message, key, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for RawKeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    tls13_raw_keys!();
}

impl ClientCertVerifier for RawKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    tls13_raw_keys!();
}
