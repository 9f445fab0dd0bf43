//! Configuration: the key of each side in a handshake, and the options of a connection.

use levada_core::{Framing, Identity, SecretKey, label};
use rustls::client::{
    AlwaysResolvesClientRawPublicKeys, ClientSessionMemoryCache, ClientSessionStore, Resumption,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, ClientHello, ResolvesServerCert, ServerSessionMemoryCache,
    StoresServerSessions,
};
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

/// Silence of the peer until a PING.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Silence of the peer until the connection is closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// How many sessions a server stores for resumption, and how many tickets a client stores.
const SESSIONS: usize = 4096;

/// The client's side of handshakes: its key, and the tickets that servers issued to it.
pub struct ClientConfig {
    tls: rustls::ClientConfig,
    tickets: Arc<ClientSessionMemoryCache>,
}

impl ClientConfig {
    /// A client whose identity is that of `key`.
    ///
    /// # Errors
    /// [`Error::Internal`] if the TLS library rejects the key.
    pub fn new(key: &SecretKey) -> Result<Self, Error> {
        Self::with_provider(key, provider())
    }

    /// A client without AES, such as one whose processor has no instructions for it.
    ///
    /// # Errors
    /// As [`Self::new`].
    #[cfg(any(test, feature = "testing"))]
    pub fn chacha20(key: &SecretKey) -> Result<Self, Error> {
        let mut chacha20 = (*provider()).clone();
        chacha20.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
        Self::with_provider(key, Arc::new(chacha20))
    }

    fn with_provider(key: &SecretKey, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified_key(key)?));
        let tickets = Arc::new(ClientSessionMemoryCache::new(SESSIONS));
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|_| Error::Internal("TLS 1.3 is not available"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ExpectedServer))
            .with_client_cert_resolver(resolver);
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls.enable_secret_extraction = true;
        // The server name is its identity. In SNI it would be visible to observers of the network.
        tls.enable_sni = false;
        tls.resumption = Resumption::store(tickets.clone());
        Ok(Self { tls, tickets })
    }

    /// Whether a ticket of `peer` is stored, so that a connection to it may be resumed.
    pub fn has_ticket(&self, peer: &Identity) -> bool {
        let Ok(name) = server_name(Some(peer)) else { return false };
        // The store has no other query than taking, so the ticket is put back.
        let Some(ticket) = self.tickets.take_tls13_ticket(&name) else { return false };
        self.tickets.insert_tls13_ticket(name, ticket);
        true
    }

    /// The configuration of one connection, and the server name that encodes `expected`.
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

    /// The configuration of one connection over a path: with the second protocol name in ALPN, and
    /// a ticket store for this connection only.
    ///
    /// # Errors
    /// [`Error::Internal`] if the identity is no server name.
    pub fn for_path(
        &self,
        server: &Identity,
        path_alpn: Vec<u8>,
        tickets: Arc<dyn ClientSessionStore>,
        capture: Arc<Capture>,
    ) -> Result<(Arc<rustls::ClientConfig>, ServerName<'static>), Error> {
        let mut tls = self.tls.clone();
        tls.key_log = capture;
        tls.alpn_protocols = vec![label::CONTEXTS_ALPN.into(), path_alpn];
        tls.resumption = Resumption::store(tickets);
        Ok((Arc::new(tls), server_name(Some(server))?))
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
    /// A server whose identity is that of `key`. It accepts any client that proves its own key.
    ///
    /// # Errors
    /// [`Error::Internal`] if the TLS library rejects the key.
    pub fn new(key: &SecretKey) -> Result<Self, Error> {
        let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified_key(key)?));
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

    /// Discards all stored sessions, so that every later connection needs a full handshake. Called
    /// when the policy changes, because a resumption calls no verifier.
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

    /// The configuration of one connection over a path: it accepts only a client that signs this
    /// path.
    pub fn for_path(
        &self,
        path_alpn: Vec<u8>,
        sessions: Arc<dyn StoresServerSessions>,
        tickets: usize,
        capture: Arc<Capture>,
    ) -> Arc<rustls::ServerConfig> {
        let mut tls = self.tls.clone();
        tls.key_log = capture;
        tls.alpn_protocols = vec![label::CONTEXTS_ALPN.into()];
        tls.session_storage = sessions;
        tls.send_tls13_tickets = tickets;
        let inner = tls.cert_resolver;
        tls.cert_resolver = Arc::new(PathResolver { inner, path_alpn });
        Arc::new(tls)
    }
}

/// Refuses a ClientHello whose ALPN does not name exactly the protocol and the path that arrived
/// with it.
#[derive(Debug)]
struct PathResolver {
    inner: Arc<dyn ResolvesServerCert>,
    path_alpn: Vec<u8>,
}

impl ResolvesServerCert for PathResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let expected = [label::CONTEXTS_ALPN.as_bytes(), &self.path_alpn];
        if hello.alpn()?.eq(expected) { self.inner.resolve(hello) } else { None }
    }

    fn only_raw_public_keys(&self) -> bool {
        self.inner.only_raw_public_keys()
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
    /// How many streams the peer may have open at a time. The same limit is assumed for this side's
    /// streams.
    pub max_streams: u32,
    /// The most unread bytes held, of all streams together; at least 1 MiB. It is the receive
    /// window of the connection. The window of one stream grows to at most half of it.
    pub connection_window: u64,
    /// Whether the peer has only the protocol's initial credit until
    /// [`crate::Connection::raise_credit`]: until then `connection_window` is not granted, and no
    /// stream's window grows.
    pub initial_credit_only: bool,
    /// The receive window of a new stream, in bytes; at least 256 KiB.
    pub stream_window: u64,
    /// A connection that received nothing for this long ends with [`Error::Idle`].
    pub idle_timeout: Duration,
    /// A connection that received nothing for this long sends a PING.
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
            idle_timeout: IDLE_TIMEOUT,
            keep_alive: KEEP_ALIVE,
            records_per_key: 1 << 23,
        }
    }
}

/// One key exchange and two cipher suites. Both ends always support them, so nothing weaker is
/// negotiated.
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

/// `key` in the form that rustls takes: its raw public key (RFC 7250) and a signer.
fn certified_key(key: &SecretKey) -> Result<Arc<CertifiedKey>, Error> {
    /// PKCS #8 around an Ed25519 seed (RFC 8410 section 7).
    const PREFIX: [u8; 16] =
        [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let mut pkcs8 = Zeroizing::new([0; 48]);
    pkcs8[..16].copy_from_slice(&PREFIX);
    pkcs8[16..].copy_from_slice(key.seed().as_ref());
    let signer = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()))
        .map_err(|_| Error::Internal("the TLS library rejected the key"))?;
    let public = CertificateDer::from(spki(&key.identity()).to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], signer)))
}

/// The server name that rustls stores tickets under. It encodes the expected identity, so that a
/// ticket is used with the peer that issued it only.
fn server_name(expected: Option<&Identity>) -> Result<ServerName<'static>, Error> {
    let name = expected.map_or_else(|| crate::verifier::ANY_PEER.to_owned(), Identity::to_string);
    ServerName::try_from(name)
        .map_err(|_| Error::Internal("an identity is not a valid server name"))
}
