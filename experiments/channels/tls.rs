//! TLS by rustls alone: the same handshake, the same cipher, its own records.

use std::net::TcpStream;
use std::sync::Arc;

use levada_core::{Identity, SecretKey, SystemRandom};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
};
use tokio::io::AsyncWriteExt;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::ends::{Meter, block_on};
use super::tcp;

/// Who the two ends are.
pub struct Keys {
    /// The connecting end.
    pub client: Arc<ClientConfig>,
    /// The accepting end.
    pub server: Arc<ServerConfig>,
}

impl Keys {
    /// Two new keys, each known to the other end, and nothing to resume from.
    pub fn new() -> anyhow::Result<Self> {
        let client_key = SecretKey::generate(&SystemRandom)?;
        let server_key = SecretKey::generate(&SystemRandom)?;
        let verifier = |key: &SecretKey| Arc::new(Expected(spki(&key.identity())));
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier(&server_key))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                certified(&client_key)?,
            )));
        client.enable_sni = false;
        client.resumption = Resumption::in_memory_sessions(16);
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier(&client_key))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(
                &server_key,
            )?)));
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// The name under which tickets are kept.
pub fn server_name() -> anyhow::Result<ServerName<'static>> {
    Ok(ServerName::try_from("far")?)
}

/// Sends messages behind their lengths: in batches of 256 KiB, or each for itself.
pub fn send(
    keys: &Keys,
    socket: TcpStream,
    batched: bool,
    message: &[u8],
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let socket = tokio::net::TcpStream::from_std(socket)?;
        let connector = TlsConnector::from(keys.client.clone());
        let mut stream = connector.connect(server_name()?, socket).await?;
        meter.start();
        if batched {
            return tcp::batches(&mut stream, message, meter).await;
        }
        let header = u32::try_from(message.len())?.to_be_bytes();
        let framed = [&header[..], message].concat();
        while !meter.stopped() {
            stream.write_all(&framed).await?;
            stream.flush().await?;
        }
        Ok(())
    })
}

/// Receives what [`send`] sends.
pub fn receive(keys: &Keys, socket: TcpStream, meter: &Meter) -> anyhow::Result<()> {
    block_on(async {
        let socket = tokio::net::TcpStream::from_std(socket)?;
        let mut stream = TlsAcceptor::from(keys.server.clone()).accept(socket).await?;
        meter.start();
        tcp::parts(&mut stream, meter).await
    })
}

/// The same algorithms as the channel's.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
            aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![aws_lc_rs::kx_group::X25519MLKEM768],
        ..aws_lc_rs::default_provider()
    })
}

/// SubjectPublicKeyInfo of an Ed25519 key (RFC 8410 section 4).
fn spki(identity: &Identity) -> Vec<u8> {
    let prefix = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
    [&prefix[..], identity.as_bytes()].concat()
}

fn certified(key: &SecretKey) -> anyhow::Result<Arc<CertifiedKey>> {
    // PKCS #8 around an Ed25519 seed (RFC 8410 section 7).
    let prefix = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let pkcs8 = [&prefix[..], key.seed().as_ref()].concat();
    let signer = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()))?;
    let public = CertificateDer::from(spki(&key.identity()));
    Ok(Arc::new(CertifiedKey::new(vec![public], signer)))
}

/// Accepts one key.
#[derive(Debug)]
struct Expected(Vec<u8>);

impl Expected {
    fn check(&self, presented: &[u8]) -> Result<(), Error> {
        let same = presented == self.0;
        if same { Ok(()) } else { Err(Error::General("an unknown key".into())) }
    }
}

fn verify(
    message: &[u8],
    key: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    verify_tls13_signature_with_raw_key(
        message,
        &SubjectPublicKeyInfoDer::from(key.as_ref()),
        signed,
        &algorithms,
    )
}

/// What both kinds of verifier answer alike.
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

impl ServerCertVerifier for Expected {
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

impl ClientCertVerifier for Expected {
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
