//! TLS by rustls: end to end through a forwarder, and one session for each link.

use std::io;
use std::sync::Arc;

use levada_channel::testing::{RawKeyVerifier, certified_key};
use levada_core::{SecretKey, SystemRandom};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use super::line::Party;

/// The configurations of the two ends of a TLS session, with mutual raw keys and the channel's algorithms.
pub struct Keys {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Keys {
    /// Two new keys, each pinned by the other end.
    pub fn new() -> anyhow::Result<Self> {
        let (client_key, server_key) =
            (SecretKey::generate(&SystemRandom)?, SecretKey::generate(&SystemRandom)?);
        let only = |key: &SecretKey| RawKeyVerifier::only(key.identity());
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(only(&server_key))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                certified_key(&client_key)?,
            )));
        client.enable_sni = false;
        client.resumption = Resumption::in_memory_sessions(16);
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(only(&client_key))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified_key(
                &server_key,
            )?)));
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// Forgets all tickets.
    pub fn forget(&mut self) {
        let mut client = (*self.client).clone();
        client.resumption = Resumption::in_memory_sessions(16);
        self.client = Arc::new(client);
    }

    /// A new client end.
    pub fn client(&self) -> anyhow::Result<Connection> {
        let name = ServerName::try_from("server")?;
        Ok(ClientConnection::new(self.client.clone(), name)?.into())
    }

    /// A new server end.
    pub fn server(&self) -> anyhow::Result<Connection> {
        Ok(ServerConnection::new(self.server.clone())?.into())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384],
        kx_groups: vec![aws_lc_rs::kx_group::X25519MLKEM768],
        ..aws_lc_rs::default_provider()
    })
}

fn receive(end: &mut Connection, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        end.read_tls(&mut rest)?;
        end.process_new_packets()?;
    }
    bytes.clear();
    Ok(())
}

fn transmit(end: &mut Connection, out: &mut Vec<u8>) -> io::Result<()> {
    while end.wants_write() {
        end.write_tls(out)?;
    }
    Ok(())
}

/// A client or a server of TLS.
pub struct End(pub Connection);

impl Party for End {
    fn receive(&mut self, _: bool, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        receive(&mut self.0, bytes)
    }

    fn transmit(&mut self, _: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(transmit(&mut self.0, out)?)
    }
}

/// A middlebox that passes bytes on.
#[derive(Default)]
pub struct Forward([Vec<u8>; 2]);

impl Party for Forward {
    fn receive(&mut self, forward: bool, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        self.0[usize::from(forward)].append(bytes);
        Ok(())
    }

    fn transmit(&mut self, forward: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.append(&mut self.0[usize::from(forward)]);
        Ok(())
    }
}

/// A middlebox with a session on each side.
pub struct Split {
    /// Towards the client.
    pub near: Connection,
    /// Towards the server.
    pub far: Connection,
}

impl Party for Split {
    fn receive(&mut self, forward: bool, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        receive(if forward { &mut self.near } else { &mut self.far }, bytes)
    }

    fn transmit(&mut self, forward: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(transmit(if forward { &mut self.far } else { &mut self.near }, out)?)
    }
}
