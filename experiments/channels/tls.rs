//! TLS by rustls: the channel's handshake and cipher, with rustls' record layer.

use std::net::TcpStream;
use std::sync::Arc;

use levada_channel::testing::{RawKeyVerifier, certified_key};
use levada_core::{SecretKey, SystemRandom};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig, SupportedCipherSuite};
use tokio::io::AsyncWriteExt;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::ends::{Meter, block_on};
use super::tcp;

/// The configurations of the two ends.
pub struct Keys {
    /// The connecting end.
    pub client: Arc<ClientConfig>,
    /// The accepting end.
    pub server: Arc<ServerConfig>,
}

impl Keys {
    /// Two new keys, each pinned by the other end, without tickets; the channel's ciphers.
    pub fn new() -> anyhow::Result<Self> {
        Self::with(&[
            aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
            aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ])
    }

    /// The same with these ciphers only.
    pub fn with(ciphers: &[SupportedCipherSuite]) -> anyhow::Result<Self> {
        let client_key = SecretKey::generate(&SystemRandom)?;
        let server_key = SecretKey::generate(&SystemRandom)?;
        let verifier = |key: &SecretKey| RawKeyVerifier::only(key.identity());
        let mut client = ClientConfig::builder_with_provider(provider(ciphers))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier(&server_key))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                certified_key(&client_key)?,
            )));
        client.enable_sni = false;
        client.resumption = Resumption::in_memory_sessions(16);
        let server = ServerConfig::builder_with_provider(provider(ciphers))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier(&client_key))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified_key(
                &server_key,
            )?)));
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// The server name under which the client stores tickets.
pub fn server_name() -> anyhow::Result<ServerName<'static>> {
    Ok(ServerName::try_from("far")?)
}

/// Sends length-prefixed messages: in batches of so many bytes, or each in a write of its own.
pub fn send(
    keys: &Keys,
    socket: TcpStream,
    batch: Option<usize>,
    message: &[u8],
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let socket = tokio::net::TcpStream::from_std(socket)?;
        let connector = TlsConnector::from(keys.client.clone());
        let mut stream = connector.connect(server_name()?, socket).await?;
        meter.start();
        if let Some(size) = batch {
            return tcp::write_batches(&mut stream, size, message, meter).await;
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
        tcp::read_messages(&mut stream, meter).await
    })
}

/// The same algorithms as the channel's.
fn provider(ciphers: &[SupportedCipherSuite]) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: ciphers.to_vec(),
        kx_groups: vec![aws_lc_rs::kx_group::X25519MLKEM768],
        ..aws_lc_rs::default_provider()
    })
}
