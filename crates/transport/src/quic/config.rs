//! The configuration of QUIC and of its TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, Error, PeerIncompatible, SignatureScheme};

use super::congestion::{Factory, Shared};

/// The name of the protocol in QUIC's handshake (RFC 7301).
pub const ALPN: &[u8] = b"lv-q1";

/// The bytes in flight to either side: 100 Mbit/s at a round trip of 200 ms are 2.5 MB, and the
/// queue of the path adds to that.
pub(super) const WINDOW: u32 = 4 * 1024 * 1024;
/// The same towards this side until its user accepts more with `limit_unread`.
pub(super) const FIRST_WINDOW: u32 = 64 * 1024;
/// Longer than the channel's 45 s, so that the channel's error is reported.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Silence until a connecting side sends a packet. The channel sends at the same time; this keeps
/// the mapping of a NAT for transports that carry something else.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Packets that an endpoint stores for a handshake that it has not begun.
const INCOMING_BUFFER: u64 = 8 * 1024;

/// The congestion controller of an endpoint's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC that tells random loss from congestion (docs/decisions/0046-quic-controller.md).
    #[default]
    Tolerant,
    /// quinn's CUBIC, for measurements.
    Cubic,
    /// quinn's New Reno, for measurements.
    NewReno,
    /// quinn's BBR, for measurements.
    Bbr,
}

/// The limits of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct QuicOptions {
    /// The handshakes of other sides that are open at a time, until their first bytes arrive; 0
    /// accepts no connections.
    pub handshakes: usize,
    /// Those of one source: an IPv4 address, or 64 bits of an IPv6 address.
    pub handshakes_per_source: usize,
    /// Those of addresses that are not validated; with more, an endpoint answers with Retry.
    pub unvalidated: usize,
    /// Silence until a connection ends; at least 1 s.
    pub idle_timeout: Duration,
    /// The congestion controller.
    pub congestion: Congestion,
}

impl Default for QuicOptions {
    fn default() -> Self {
        Self {
            handshakes: 256,
            handshakes_per_source: 32,
            unvalidated: 8,
            idle_timeout: IDLE_TIMEOUT,
            congestion: Congestion::Tolerant,
        }
    }
}

/// What new connections of an endpoint need.
#[derive(Clone)]
pub(super) struct Configs {
    client: ClientConfig,
    server: ServerConfig,
    options: QuicOptions,
}

impl Configs {
    /// With a new temporary key.
    pub(super) fn new(options: &QuicOptions) -> io::Result<Self> {
        let client = Arc::new(QuicClientConfig::try_from(client_tls()?).map_err(io::Error::other)?);
        let server = Arc::new(QuicServerConfig::try_from(server_tls()?).map_err(io::Error::other)?);
        let mut server = ServerConfig::with_crypto(server);
        server
            // An address to which a connection moves would get bytes before it is validated.
            .migration(false)
            .max_incoming(options.handshakes)
            .incoming_buffer_size(INCOMING_BUFFER)
            .incoming_buffer_size_total(INCOMING_BUFFER * options.handshakes as u64);
        let client = ClientConfig::new(client);
        Ok(Self { client, server, options: *options })
    }

    /// For one connection to another endpoint, and what it shares with its congestion controller.
    pub(super) fn client(&self) -> (ClientConfig, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        let mut transport = self.transport(&shared);
        transport
            .keep_alive_interval(Some(KEEP_ALIVE))
            .max_concurrent_bidi_streams(VarInt::from_u32(0));
        let mut config = self.client.clone();
        config.transport_config(Arc::new(transport));
        (config, shared)
    }

    /// For one connection of another endpoint.
    pub(super) fn server(&self) -> (Arc<ServerConfig>, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        let mut transport = self.transport(&shared);
        transport.max_concurrent_bidi_streams(VarInt::from_u32(1));
        let mut config = self.server.clone();
        config.transport_config(Arc::new(transport));
        (Arc::new(config), shared)
    }

    fn transport(&self, shared: &Arc<Shared>) -> TransportConfig {
        let idle = self.options.idle_timeout.max(Duration::from_secs(1)).as_millis();
        let idle = VarInt::from_u32(u32::try_from(idle).unwrap_or(u32::MAX));
        let controller: Arc<dyn ControllerFactory + Send + Sync> = match self.options.congestion {
            Congestion::Tolerant => Arc::new(Factory(shared.clone())),
            Congestion::Cubic => Arc::new(CubicConfig::default()),
            Congestion::NewReno => Arc::new(NewRenoConfig::default()),
            Congestion::Bbr => Arc::new(BbrConfig::default()),
        };
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .max_idle_timeout(Some(IdleTimeout::from(idle)))
            .stream_receive_window(VarInt::from_u32(WINDOW))
            .receive_window(VarInt::from_u32(FIRST_WINDOW))
            .send_window(u64::from(WINDOW))
            .congestion_controller_factory(controller);
        transport
    }
}

fn client_tls() -> io::Result<rustls::ClientConfig> {
    let mut config = rustls::ClientConfig::builder_with_provider(crypto())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn server_tls() -> io::Result<rustls::ServerConfig> {
    let key = Ed25519KeyPair::generate().and_then(|key| key.to_pkcs8v1());
    let key = key.map_err(|_| io::Error::other("no temporary key for QUIC could be made"))?;
    let key = PrivatePkcs8KeyDer::from(key.as_ref());
    let signer = provider::sign::any_eddsa_type(&key).map_err(io::Error::other)?;
    let public = signer.public_key().ok_or_else(|| io::Error::other("a key has no public half"))?;
    let public = CertificateDer::from(public.to_vec());
    let key = Arc::new(CertifiedKey::new(vec![public], signer));
    let mut config = rustls::ServerConfig::builder_with_provider(crypto())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The cheapest cipher and key exchange: the channel inside has those that protect its data.
fn crypto() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
            provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![provider::kx_group::X25519],
        ..provider::default_provider()
    })
}

/// Accepts any key and any signature: see the documentation of the module.
#[derive(Debug)]
struct AnyKey;

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
