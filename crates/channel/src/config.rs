//! Who we are in a handshake, and how a connection behaves.

use levada_core::{Framing, Identity, SecretKey};
use rustls::client::{
    AlwaysResolvesClientRawPublicKeys, ClientSessionMemoryCache, ClientSessionStore, Resumption,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zeroize::Zeroizing;

use crate::Error;
use crate::exporter::Capture;
use crate::verifier::{AnyClient, ExpectedServer, spki};

/// The protocol name in ALPN (RFC 7301).
pub(crate) const ALPN: &[u8] = b"levada/1";

/// How many sessions a server keeps for resumption, and how many tickets a client keeps.
const SESSIONS: usize = 4096;

/// The client's side of handshakes: its key, and the tickets that servers gave it.
pub struct ClientConfig {
    tls: rustls::ClientConfig,
    tickets: Arc<ClientSessionMemoryCache>,
}

impl ClientConfig {
    /// Handshakes as `key`.
    ///
    /// # Errors
    /// [`Error::Internal`] if the library refuses the key.
    pub fn new(key: &SecretKey) -> Result<Self, Error> {
        let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(key)?));
        let tickets = Arc::new(ClientSessionMemoryCache::new(SESSIONS));
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|_| Error::Internal("TLS 1.3 is not available"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ExpectedServer))
            .with_client_cert_resolver(resolver);
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls.enable_secret_extraction = true;
        // The name of the server holds its key, which is nobody's business on the way.
        tls.enable_sni = false;
        tls.resumption = Resumption::store(tickets.clone());
        Ok(Self { tls, tickets })
    }

    /// Whether a ticket of `peer` is at hand, so that a connection to it may be resumed.
    pub fn has_ticket(&self, peer: &Identity) -> bool {
        let Ok(name) = server_name(Some(peer)) else { return false };
        // The store can only be asked by taking; the ticket goes back to where it was.
        let Some(ticket) = self.tickets.take_tls13_ticket(&name) else { return false };
        self.tickets.insert_tls13_ticket(name, ticket);
        true
    }

    /// The configuration of one connection, and the name that stands for `expected`.
    pub(crate) fn instance(
        &self,
        expected: Option<&Identity>,
        capture: Arc<Capture>,
    ) -> Result<(Arc<rustls::ClientConfig>, ServerName<'static>), Error> {
        let mut tls = self.tls.clone();
        tls.key_log = capture;
        if expected.is_none() {
            tls.resumption = Resumption::disabled();
        }
        Ok((Arc::new(tls), server_name(expected)?))
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientConfig")
    }
}

/// The server's side of handshakes: its key, and the sessions that may be resumed.
pub struct ServerConfig {
    tls: rustls::ServerConfig,
    sessions: Mutex<Arc<ServerSessionMemoryCache>>,
}

impl ServerConfig {
    /// Handshakes as `key`, with any client that proves its own key.
    ///
    /// # Errors
    /// [`Error::Internal`] if the library refuses the key.
    pub fn new(key: &SecretKey) -> Result<Self, Error> {
        let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(key)?));
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|_| Error::Internal("TLS 1.3 is not available"))?
            .with_client_cert_verifier(Arc::new(AnyClient))
            .with_cert_resolver(resolver);
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls.enable_secret_extraction = true;
        tls.max_early_data_size = 0;
        Ok(Self { tls, sessions: Mutex::new(ServerSessionMemoryCache::new(SESSIONS)) })
    }

    /// From now on no earlier session can be resumed. For a change of policy: resumption asks no
    /// verifier, so whoever is resumed must be judged again anyway, and here starts afresh.
    pub fn forget_sessions(&self) {
        if let Ok(mut sessions) = self.sessions.lock() {
            *sessions = ServerSessionMemoryCache::new(SESSIONS);
        }
    }

    /// The configuration of one connection.
    pub(crate) fn instance(
        &self,
        capture: Arc<Capture>,
    ) -> Result<Arc<rustls::ServerConfig>, Error> {
        let sessions =
            self.sessions.lock().map_err(|_| Error::Internal("a poisoned lock"))?.clone();
        let mut tls = self.tls.clone();
        tls.key_log = capture;
        tls.session_storage = sessions;
        Ok(Arc::new(tls))
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerConfig")
    }
}

/// How a connection behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How this side's messages become records. A server with [`Framing::Auto`] answers a client
    /// that asks for blocks in blocks of the same length.
    pub framing: Framing,
    /// How many streams the peer may have open at a time; the same is assumed of the peer.
    pub max_streams: u32,
    /// The most bytes held for readers that do not read, of all streams together; at least 1 MiB.
    /// The credit of the connection is as much, that of one stream grows up to half of it.
    pub connection_window: u64,
    /// Whether the peer has no more than the protocol's initial credit until [`crate::Connection::raise_credit`]:
    /// neither `connection_window` is granted, nor does the window of a stream grow.
    pub initial_credit_only: bool,
    /// The credit that a stream of the peer starts with, in bytes; at least 256 KiB.
    pub stream_window: u64,
    /// A connection on which nothing was received for so long is dead.
    pub idle_timeout: Duration,
    /// After so much silence the peer is asked for a sign of life.
    pub keep_alive: Duration,
    /// How many records are sealed under one key before it is updated; at most 2^23
    /// (AES-GCM allows 2^24, RFC 8446 section 5.5).
    pub records_per_key: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            framing: Framing::Auto,
            max_streams: 256,
            connection_window: 16 << 20,
            initial_credit_only: false,
            stream_window: 256 << 10,
            idle_timeout: Duration::from_secs(45),
            keep_alive: Duration::from_secs(15),
            records_per_key: 1 << 23,
        }
    }
}

/// One key exchange, two ciphers: what both ends always have in common, and nothing weaker.
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

/// `key` as TLS wants it: its raw public key (RFC 7250) and a signer.
fn certified(key: &SecretKey) -> Result<Arc<CertifiedKey>, Error> {
    /// PKCS #8 around an Ed25519 seed (RFC 8410 section 7).
    const PREFIX: [u8; 16] =
        [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let mut pkcs8 = Zeroizing::new([0; 48]);
    pkcs8[..16].copy_from_slice(&PREFIX);
    pkcs8[16..].copy_from_slice(key.seed().as_ref());
    let signer = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()))
        .map_err(|_| Error::Internal("the key was refused"))?;
    let public = CertificateDer::from(spki(&key.identity()).to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], signer)))
}

/// The name under which rustls knows the peer: tickets are kept by it, so it is unique to the key.
fn server_name(expected: Option<&Identity>) -> Result<ServerName<'static>, Error> {
    let name = expected.map_or_else(|| crate::verifier::ANYBODY.to_owned(), Identity::to_string);
    ServerName::try_from(name).map_err(|_| Error::Internal("an identity is no name"))
}
