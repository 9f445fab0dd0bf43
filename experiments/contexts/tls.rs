//! TLS by rustls: end to end through a forwarder, and one session for each link.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::line::Party;
use super::script::{Script, Step};
use crate::channels::tls;

/// The configurations of the two ends of a TLS session, with mutual raw keys and the cipher of
/// contexts.
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

/// Keys for connections over sockets, whose handshakes are all full.
pub fn full_handshakes() -> anyhow::Result<tls::Keys> {
    let mut keys = Keys::new()?.0;
    Arc::make_mut(&mut keys.client).resumption = Resumption::disabled();
    Ok(keys)
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
pub struct End {
    connection: Connection,
    script: Option<Script>,
}

impl End {
    /// An end that exchanges nothing.
    pub fn new(connection: Connection) -> Self {
        Self { connection, script: None }
    }

    /// An end with a script.
    pub fn with(mut connection: Connection, script: Script) -> Self {
        connection.set_buffer_limit(None);
        Self { connection, script: Some(script) }
    }
}

impl Party for End {
    fn receive(&mut self, _: bool, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            self.connection.read_tls(&mut rest)?;
            let state = self.connection.process_new_packets()?;
            let Some(script) = &mut self.script else { continue };
            let length = state.plaintext_bytes_to_read();
            self.connection.reader().read_exact(&mut vec![0; length])?;
            script.received_bytes(length);
        }
        bytes.clear();
        Ok(())
    }

    fn transmit(&mut self, _: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(transmit(&mut self.connection, out)?)
    }

    fn advance(&mut self) -> anyhow::Result<bool> {
        let Some(script) = &mut self.script else { return Ok(false) };
        // The end of a connection would break off its handshake.
        if self.connection.is_handshaking() {
            return Ok(false);
        }
        match script.next() {
            None => return Ok(false),
            Some(Step::Send(contexts)) => {
                let message = vec![7; contexts.iter().sum()];
                for piece in message.chunks(script.longest()) {
                    self.connection.writer().write_all(piece)?;
                }
            }
            Some(Step::Close) => self.connection.send_close_notify(),
        }
        Ok(true)
    }

    fn is_done(&self) -> bool {
        self.script.as_ref().is_none_or(Script::is_done)
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
