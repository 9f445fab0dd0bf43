//! The middlebox's part of the handshake.

mod from_server;

use std::sync::Arc;
use std::time::Instant;

use levada_core::{Digest, Hasher, Random, SecretKey, SystemRandom};

use super::client::{alert, put_ready};
use super::frame::{self};
use super::kem::OneTimeKey;
use super::messages::{self, Hello, Start, open_client_share};
use super::path::Path;
use super::schedule::{Classes, ContextKeys, Direction, HopSecrets, Resume};
use super::tickets::HopTickets;
use super::{ContextError, Role};
use crate::Error;
use crate::record::{ALERT, DATA, HANDSHAKE};

/// Decides whether a middlebox carries a path, with its own number in it: the next address and the server must be on its
/// list. Nothing is authenticated yet. The text of a refusal goes to this side's log.
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
    server_halves: zeroize::Zeroizing<Vec<u8>>,
    pub(crate) th2: Digest,
    tickets: u8,
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

    /// Takes a whole frame from the client's side; appends what goes to the server to `out`.
    pub(crate) fn receive_from_client(
        &mut self,
        whole: &[u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(), ContextError> {
        let (header, body) = messages::split(whole)?;
        match (header[0], self.from_client) {
            (frame::PATH, FromClient::Path) => {
                self.receive_path(whole)?;
                out.extend_from_slice(whole);
                self.from_client = FromClient::ClientHello;
            }
            (HANDSHAKE, FromClient::ClientHello) => {
                out.extend_from_slice(whole);
                let first = self.first.as_mut().ok_or(NO_PATH)?;
                first.l_0 = messages::first_transcript(&first.whole, whole);
                first.before = first.l_0;
                self.from_client = FromClient::Hello { hop: 1, key: false };
                self.answer_in_turn(1, out, now)?;
            }
            (frame::MBHELLO, FromClient::Hello { hop, key: false }) => {
                out.extend_from_slice(whole);
                self.pass_hello(whole, body, hop, out, now)?;
            }
            (frame::MBKEY, FromClient::Hello { hop, key: true }) => {
                out.extend_from_slice(whole);
                self.from_client = FromClient::Hello { hop: hop + 1, key: false };
                self.answer_in_turn(hop + 1, out, now)?;
            }
            (DATA | ALERT, FromClient::Second) => out.extend_from_slice(whole),
            (frame::READY, FromClient::Second) if body.first() == Some(&0) => {
                out.extend_from_slice(whole);
                self.from_client = self.after_ready(0);
            }
            (frame::READY, FromClient::Ready(hop)) if body.first() == Some(&hop) => {
                out.extend_from_slice(whole);
                self.from_client = self.after_ready(hop);
            }
            (frame::CSHARE, FromClient::Share(hop)) if body.first() == Some(&hop) => {
                self.receive_client_share(whole, hop, out)?;
            }
            (frame::ALERT, _) => return Err(alert(body)),
            _ => return Err(ContextError::Unexpected("a frame of the client's handshake")),
        }
        Ok(())
    }

    fn number(&self) -> u8 {
        self.path().map_or(0, |(_, number)| number)
    }

    fn after_ready(&self, hop: u8) -> FromClient {
        if hop + 1 == self.number() {
            FromClient::Share(hop + 1)
        } else {
            FromClient::Ready(hop + 1)
        }
    }

    fn receive_path(&mut self, whole: &[u8]) -> Result<(), ContextError> {
        let path = Path::decode(whole)?;
        let own = self.setup.key.identity();
        // Keys in a PATH are distinct, so there is at most one place.
        let at = path.hops.iter().position(|hop| hop.party.identity == own);
        let at = at.ok_or(ContextError::Refused("the path does not lead here".to_owned()))?;
        let number = u8::try_from(at + 1).unwrap_or(u8::MAX);
        (self.setup.policy)(&path, number).map_err(ContextError::Refused)?;
        self.first = Some(First {
            path,
            whole: whole.to_vec(),
            number,
            l_0: Digest::default(),
            before: Digest::default(),
            own: Vec::new(),
            key: None,
            resume: None,
        });
        Ok(())
    }

    /// Passes on the MBHELLO of a hop before this one.
    fn pass_hello(
        &mut self,
        whole: &[u8],
        body: &[u8],
        hop: u8,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(), ContextError> {
        let hello = Hello::take(body)?;
        if hello.hop != hop {
            return Err(ContextError::Unexpected("a MBHELLO of another middlebox"));
        }
        let first = self.first.as_mut().ok_or(NO_PATH)?;
        first.before = messages::next_transcript(&first.before, whole);
        if !hello.is_resumed() {
            self.from_client = FromClient::Hello { hop, key: true };
            return Ok(());
        }
        self.from_client = FromClient::Hello { hop: hop + 1, key: false };
        self.answer_in_turn(hop + 1, out, now)
    }

    /// Appends the own MBHELLO and MBKEY if it is this middlebox's turn.
    fn answer_in_turn(
        &mut self,
        hop: u8,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(), ContextError> {
        let Self { first, setup, .. } = self;
        let first = first.as_mut().ok_or(NO_PATH)?;
        if hop != first.number {
            return Ok(());
        }
        let id = first.path.hops[usize::from(hop) - 1].resume;
        let server = &first.path.server.identity;
        first.resume = id.and_then(|id| setup.tickets.take(server, &id, now));
        let mut nonce = [0; 32];
        SystemRandom.fill(&mut nonce).map_err(|_| Error::Internal("no random bytes"))?;
        let resumed = first.resume.as_ref();
        let resumed = resumed.and_then(|resume| Hello::resumed(resume, hop, &first.before, nonce));
        let start = out.len();
        if let Some(hello) = resumed {
            hello.put(out);
            first.own = out[start..].to_vec();
        } else {
            let key = OneTimeKey::generate(first.path.kem)?;
            Hello::signed(&setup.key, hop, &first.before, key.public()).put(out);
            first.own = out[start..].to_vec();
            frame::put(out, frame::MBKEY, &[&[hop], key.public()]);
            first.key = Some(key);
        }
        self.from_client = FromClient::Second;
        Ok(())
    }

    /// Opens the own CSHARE, and proves to the server that this middlebox has the keys; passes on those of later hops.
    fn receive_client_share(
        &mut self,
        whole: &[u8],
        hop: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), ContextError> {
        let bound = self.bound.as_ref().ok_or(ContextError::Unexpected("a CSHARE before SBIND"))?;
        if hop == bound.number {
            let HopBound { secrets, th2, classes, server_halves, .. } = bound;
            let halves = open_client_share(&secrets.a, th2, hop, whole)?;
            let keys = classes.keys_of_hop(hop, &halves, server_halves, th2);
            self.keys = Some(keys.ok_or(ContextError::Malformed("a CSHARE"))?);
            let tag = secrets.ready(Direction::ToServer, th2).ok_or(NO_SECRET)?;
            put_ready(out, hop, &tag, &[]);
        } else {
            out.extend_from_slice(whole);
        }
        let last = usize::from(hop) == bound.path.hops.len();
        self.from_client = if last { FromClient::Open } else { FromClient::Share(hop + 1) };
        Ok(())
    }
}

const NO_PATH: ContextError = ContextError::Unexpected("a frame before PATH");
const NO_SECRET: ContextError =
    ContextError::Tls(Error::Internal("a secret of this middlebox is missing"));

/// The cipher suite in a ServerHello (RFC 8446 section 4.1.3): header 4, version 2, random 32, session id 1 + n, suite 2. TH1 covers it, so
/// SBIND authenticates it.
fn chosen_suite(message: &[u8]) -> Option<u16> {
    const SERVER_HELLO: u8 = 2;
    let rest = message.get(38..).filter(|_| message[0] == SERVER_HELLO)?;
    let (&length, rest) = rest.split_first()?;
    let suite = rest.get(usize::from(length)..)?.first_chunk()?;
    Some(u16::from_be_bytes(*suite))
}
