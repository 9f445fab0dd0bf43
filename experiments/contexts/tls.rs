//! TLS by rustls: end to end through a forwarder, and one session for each link.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::line::Party;
use crate::channels::tls;

/// The configurations of the two ends of a TLS session, with mutual raw keys and the cipher of contexts.
pub struct Keys(tls::Keys);

impl Keys {
    /// Two new keys, each pinned by the other end.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self(tls::Keys::with(&[TLS13_AES_256_GCM_SHA384])?))
    }

    /// Forgets all tickets.
    pub fn forget(&mut self) {
        let mut client = (*self.0.client).clone();
        client.resumption = Resumption::in_memory_sessions(16);
        self.0.client = Arc::new(client);
    }

    /// A new client end.
    pub fn client(&self) -> anyhow::Result<Connection> {
        let name = ServerName::try_from("server")?;
        Ok(ClientConnection::new(self.0.client.clone(), name)?.into())
    }

    /// A new server end.
    pub fn server(&self) -> anyhow::Result<Connection> {
        Ok(ServerConnection::new(self.0.server.clone())?.into())
    }
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
