//! The middlebox's part of the handshake.

mod from_client;
mod from_server;

use std::sync::Arc;

use levada_core::{Digest, Hasher, SecretKey};

use super::kem::OneTimeKey;
use super::messages::Start;
use super::path::Path;
use super::schedule::{Classes, ContextKeys, Direction, HopSecrets, Resume};
use super::tickets::HopTickets;
use super::{ContextError, Role};
use levada_channel::Error;

/// Decides whether a middlebox carries a path, with its own number in it: the next address and the
/// server must be on its list. Nothing is authenticated yet. The text of a refusal goes to this
/// side's log.
pub type HopPolicy = dyn Fn(&Path, u8) -> Result<(), String> + Send + Sync;

/// What a middlebox needs for its part in sessions.
#[derive(Clone)]
pub struct HopSetup {
    /// Its identity key.
    pub key: Arc<SecretKey>,
    /// What it keeps for later sessions.
    pub tickets: Arc<HopTickets>,
    /// Which paths it carries.
    pub policy: Arc<HopPolicy>,
}

/// The handshake of a middlebox.
pub(crate) struct HopHandshake {
    setup: HopSetup,
    from_client: FromClient,
    from_server: FromServer,
    first: Option<First>,
    /// TLS records of the server, until ECHO.
    flight: Hasher,
    /// The frame SSHARE for this middlebox.
    share: Option<Vec<u8>>,
    /// The cipher suite of the ServerHello.
    suite: Option<u16>,
    l_n: Digest,
    bound: Option<HopBound>,
    keys: Option<Vec<Option<ContextKeys>>>,
    start: Option<Start>,
}

/// What was learned from PATH, and this middlebox's own first message.
struct First {
    path: Path,
    whole: Vec<u8>,
    number: u8,
    /// L_0.
    l_0: Digest,
    /// L_{i-1}, before the own MBHELLO.
    before: Digest,
    own: Vec<u8>,
    key: Option<OneTimeKey>,
    resume: Option<Resume>,
}

/// What a middlebox has after SBIND.
pub(crate) struct HopBound {
    pub(crate) path: Path,
    pub(crate) classes: Classes,
    pub(crate) number: u8,
    pub(crate) secrets: HopSecrets,
    pub(crate) server_halves: zeroize::Zeroizing<Vec<u8>>,
    pub(crate) th2: Digest,
    pub(crate) tickets: u8,
    /// The server has resumed with this middlebox.
    pub(crate) resumed: bool,
    /// TLS, hence records, use AES-256-GCM; otherwise ChaCha20-Poly1305.
    pub(crate) aes: bool,
}

/// What is expected from the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FromClient {
    Path,
    ClientHello,
    /// MBHELLO of this hop, or its MBKEY.
    Hello {
        hop: u8,
        key: bool,
    },
    /// TLS records, then READY of the client.
    Second,
    /// READY of this hop.
    Ready(u8),
    /// CSHARE of this hop.
    Share(u8),
    Open,
}

/// What is expected from the server's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FromServer {
    /// TLS records, then ECHO.
    Flight,
    /// SSHARE of this hop.
    Share(u8),
    Bind,
    /// READY of the server, with the start.
    Start,
    /// READY of this hop.
    Ready(u8),
    Open,
}

impl HopHandshake {
    pub(crate) fn new(setup: HopSetup) -> Self {
        Self {
            setup,
            from_client: FromClient::Path,
            from_server: FromServer::Flight,
            first: None,
            flight: Hasher::default(),
            share: None,
            suite: None,
            l_n: Digest::default(),
            bound: None,
            keys: None,
            start: None,
        }
    }

    /// The path, and the number of this middlebox in it, once PATH has arrived.
    pub(crate) fn path(&self) -> Option<(&Path, u8)> {
        match (&self.first, &self.bound) {
            (Some(first), _) => Some((&first.path, first.number)),
            (_, Some(bound)) => Some((&bound.path, bound.number)),
            _ => None,
        }
    }

    /// The keys of contexts, from 1, once the halves of both endpoints have arrived.
    pub(crate) fn keys(&self) -> Option<(&HopBound, &[Option<ContextKeys>])> {
        Some((self.bound.as_ref()?, self.keys.as_deref()?))
    }

    /// The one-time key, until the server's share is opened: what an attacker in the memory of this
    /// middlebox has.
    #[cfg(test)]
    pub(crate) fn one_time_key(&self) -> Option<&OneTimeKey> {
        self.first.as_ref()?.key.as_ref()
    }

    /// What a malicious server shares with this middlebox.
    #[cfg(test)]
    pub(crate) fn bound(&self) -> Option<&HopBound> {
        self.bound.as_ref()
    }

    /// Whether frames from this side are no longer the handshake's.
    pub(crate) fn is_open(&self, from: Direction) -> bool {
        match from {
            Direction::ToServer => self.from_client == FromClient::Open,
            Direction::ToClient => self.from_server == FromServer::Open,
        }
    }

    pub(crate) fn is_resumed(&self) -> Option<bool> {
        self.bound.as_ref().map(|bound| bound.resumed)
    }

    /// The verdict of the server, once it has come.
    pub(crate) fn start(&self) -> Option<Start> {
        self.start
    }

    fn number(&self) -> u8 {
        self.path().map_or(0, |(_, number)| number)
    }

    /// What this middlebox waits for: the client's first flight, then the server's, and so on.
    pub(crate) fn awaited(&self) -> (&'static str, Role) {
        let hops = self.path().map_or(0, |(path, _)| path.hops.len());
        let from_server = match self.from_server {
            FromServer::Flight => ("its TLS flight", Role::Server),
            FromServer::Share(_) => ("SSHARE", Role::Server),
            FromServer::Bind => ("SBIND", Role::Server),
            FromServer::Start | FromServer::Open => ("READY", Role::Server),
            FromServer::Ready(hop) => ("READY", Role::at(hop, hops)),
        };
        let bound = self.bound.is_some();
        match self.from_client {
            FromClient::Path => ("PATH", Role::Client),
            FromClient::ClientHello => ("ClientHello", Role::Client),
            FromClient::Hello { hop, key: false } => ("MBHELLO", Role::at(hop, hops)),
            FromClient::Hello { hop, key: true } => ("MBKEY", Role::at(hop, hops)),
            FromClient::Second if bound => ("READY", Role::Client),
            FromClient::Ready(hop) if bound => ("READY", Role::at(hop, hops)),
            FromClient::Share(_) if bound => ("CSHARE", Role::Client),
            _ => from_server,
        }
    }
}

const NO_PATH: ContextError = ContextError::Unexpected("a frame before PATH");
const NO_SECRET: ContextError =
    ContextError::Tls(Error::Internal("a secret of this middlebox is missing"));
