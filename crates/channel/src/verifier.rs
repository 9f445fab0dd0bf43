//! Verification of the peer's key in a handshake: raw Ed25519 public keys (RFC 7250), and no
//! certificates.

use levada_core::Identity;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, SignatureScheme,
};
use std::sync::Arc;
use thiserror::Error;

/// The server name that accepts any key; it is not a valid identity.
pub(crate) const ANY_PEER: &str = "any-peer";

/// SubjectPublicKeyInfo of an Ed25519 key (RFC 8410 section 4), up to the key itself.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// `identity` as a SubjectPublicKeyInfo.
pub(crate) fn spki(identity: &Identity) -> [u8; 44] {
    let mut bytes = [0; 44];
    bytes[..12].copy_from_slice(&SPKI_PREFIX);
    bytes[12..].copy_from_slice(identity.as_bytes());
    bytes
}

/// The identity in a SubjectPublicKeyInfo, if it is an Ed25519 key.
pub(crate) fn identity(spki: &[u8]) -> Option<Identity> {
    Identity::try_from(spki.strip_prefix(&SPKI_PREFIX)?).ok()
}

/// The server proved another key than the one expected.
#[derive(Debug, Error)]
#[error("the peer is {presented}, not {expected}")]
pub(crate) struct WrongKey {
    pub(crate) expected: Identity,
    pub(crate) presented: Identity,
}

/// Accepts only the server whose identity is the server name. All connections of a client share one
/// object, because rustls resumes a session only under the verifier object of the full handshake.
#[derive(Debug)]
pub(crate) struct ExpectedServer;

impl ServerCertVerifier for ExpectedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = identity(end_entity).ok_or(CertificateError::BadEncoding)?;
        let name = server_name.to_str();
        if name == ANY_PEER {
            return Ok(ServerCertVerified::assertion());
        }
        let expected = name.parse().map_err(|_| CertificateError::NotValidForName)?;
        if presented != expected {
            let wrong = Arc::new(WrongKey { expected, presented });
            return Err(CertificateError::Other(OtherError(wrong)).into());
        }
        Ok(ServerCertVerified::assertion())
    }

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
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts every client that proves an Ed25519 key. The layers above authorise each operation
/// against the current policy, because a resumption calls no verifier.
#[derive(Debug)]
pub(crate) struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        identity(end_entity).ok_or(CertificateError::BadEncoding)?;
        Ok(ClientCertVerified::assertion())
    }

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
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn verify_signature(
    message: &[u8],
    cert: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    if dss.scheme != SignatureScheme::ED25519 {
        return Err(rustls::PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let algorithms: WebPkiSupportedAlgorithms =
        aws_lc_rs::default_provider().signature_verification_algorithms;
    let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, dss, &algorithms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ed25519_keys_are_identities() {
        let id = Identity::from_bytes([7; 32]);
        assert_eq!(identity(&spki(&id)), Some(id));
        assert_eq!(identity(&spki(&id)[..43]), None);
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Some(id) = identity(bytes) {
                assert_eq!(&spki(&id)[..], bytes);
            }
        });
    }

    #[test]
    fn the_name_for_any_peer_is_not_an_identity() {
        assert!(ANY_PEER.parse::<Identity>().is_err());
    }
}
