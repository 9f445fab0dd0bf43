//! The server's side of the handshake with middleboxes.

use std::sync::Arc;

use levada_core::{
    Digest, Hasher, Identity, Random, SecretKey, SystemRandom, label, label::derive, sha256,
};

use super::client::{Bound, Step, alert, is_aes};
use super::frame::{self, Fields};
use super::messages::{self, Bind, BindProof, Hello, HelloProof, Share};
use super::path::{self, Path};
use super::schedule::{self, Classes, Direction, EndpointSecret, HopSecrets, Resume, Secret};
use super::tail::{Tail, put_records};
use super::tickets::{OneSession, PathSessions};
use super::{ContextError, Role};
use crate::exporter::Capture;
use crate::handshake::Handshake;
use crate::record::{ALERT, DATA, HANDSHAKE};
use crate::{Error, ServerConfig};

/// Decides whether a path may be used, before any public-key operation. The text of a refusal goes to this side's log.
pub type PathPolicy = dyn Fn(&Path) -> Result<(), String> + Send + Sync;

/// What a server needs for sessions with middleboxes.
#[derive(Clone)]
pub struct ServerPaths {
    /// Its TLS configuration.
    pub config: Arc<ServerConfig>,
    /// Its identity key.
    pub key: Arc<SecretKey>,
    /// Sessions that may be resumed.
    pub sessions: Arc<PathSessions>,
    /// How many tickets a session issues, at most 8.
    pub tickets: u8,
    /// Which paths it accepts.
    pub policy: Arc<PathPolicy>,
}

/// The handshake of a server, until every READY was verified.
pub(crate) struct ServerHandshake {
    paths: ServerPaths,
    stage: Stage,
}

enum Stage {
    Path,
    ClientHello(Box<First>),
    Hellos(Box<First>),
    Finished(Box<Second>),
    /// READY of this hop is next; 0 is the client's.
    Ready(Box<Second>, u8),
}

/// What the first flight consists of.
struct First {
    path: Path,
    path_frame: Vec<u8>,
    client_hello: Vec<u8>,
    transcript: Digest,
    hellos: Vec<Hello>,
    echo: Vec<u8>,
    /// The KEM key of each hop; empty for a resumed one.
    keys: Vec<Vec<u8>>,
}

/// What is kept after the server's flight.
struct Second {
    path: Path,
    classes: Classes,
    tls: Handshake,
    secret: EndpointSecret,
    th2: Digest,
    hops: Vec<(Identity, HopSecrets)>,
    /// The tickets that rustls has written.
    held: Vec<u8>,
}

impl ServerHandshake {
    pub(crate) fn new(paths: ServerPaths) -> Self {
        Self { paths, stage: Stage::Path }
    }

    /// What the server waits for.
    pub(crate) fn awaited(&self) -> (&'static str, Role) {
        let hop = |number: usize| Role::Middlebox(u8::try_from(number).unwrap_or(u8::MAX));
        match &self.stage {
            Stage::Path => ("PATH", Role::Client),
            Stage::ClientHello(_) => ("ClientHello", Role::Client),
            Stage::Hellos(first) if first.keys.len() < first.hellos.len() => {
                ("MBKEY", hop(first.hellos.len()))
            }
            Stage::Hellos(first) => ("MBHELLO", hop(first.hellos.len() + 1)),
            Stage::Finished(_) => ("its TLS Finished", Role::Client),
            Stage::Ready(second, number) => ("READY", Role::at(*number, second.hops.len())),
        }
    }

    /// Takes a whole frame. Appends the server's flight to `out` when the first one is complete. At the end `tickets` are the TLS
    /// records that must follow the server's READY.
    pub(crate) fn receive(
        self,
        whole: &[u8],
        out: &mut Vec<u8>,
        tickets: &mut Vec<u8>,
    ) -> Result<Step<Self>, ContextError> {
        let (header, body) = messages::split(whole)?;
        let Self { paths, stage } = self;
        let next = match (header[0], stage) {
            (frame::PATH, Stage::Path) => Stage::ClientHello(receive_path(&paths, whole)?),
            (HANDSHAKE, Stage::ClientHello(mut first)) => {
                first.transcript = messages::first_transcript(&first.path_frame, whole);
                first.client_hello = whole.to_vec();
                Stage::Hellos(first)
            }
            (frame::MBHELLO, Stage::Hellos(mut first)) => {
                first.receive_hello(whole, body)?;
                respond_if_complete(&paths, first, out)?
            }
            (frame::MBKEY, Stage::Hellos(mut first)) => {
                first.receive_key(body)?;
                respond_if_complete(&paths, first, out)?
            }
            (ALERT | DATA, Stage::Finished(mut second)) => {
                if second.tls.receive(whole, &mut second.held)? {
                    Stage::Ready(second, 0)
                } else {
                    Stage::Finished(second)
                }
            }
            (frame::READY, Stage::Ready(second, hop)) => {
                second.verify_ready(hop, body)?;
                if usize::from(hop) == second.hops.len() {
                    return second.finish(tickets).map(|bound| Step::Done(Box::new(bound)));
                }
                Stage::Ready(second, hop + 1)
            }
            (frame::ALERT, _) => return Err(alert(body)),
            _ => return Err(ContextError::Unexpected("a frame in the client's handshake")),
        };
        Ok(Step::More(Self { paths, stage: next }))
    }
}

fn receive_path(paths: &ServerPaths, whole: &[u8]) -> Result<Box<First>, ContextError> {
    let path = Path::decode(whole)?;
    if path.server.identity != paths.key.identity() {
        return Err(ContextError::Refused("the path leads to another server".to_owned()));
    }
    (paths.policy)(&path).map_err(ContextError::Refused)?;
    Ok(Box::new(First {
        path,
        path_frame: whole.to_vec(),
        client_hello: Vec::new(),
        transcript: Digest::default(),
        hellos: Vec::new(),
        echo: Vec::new(),
        keys: Vec::new(),
    }))
}

impl First {
    fn receive_hello(&mut self, whole: &[u8], body: &[u8]) -> Result<(), ContextError> {
        if self.keys.len() != self.hellos.len() {
            return Err(ContextError::Unexpected("a MBHELLO"));
        }
        let hello = Hello::take(body)?;
        if usize::from(hello.hop) != self.hellos.len() + 1 {
            return Err(ContextError::Unexpected("a MBHELLO of another middlebox"));
        }
        if hello.is_resumed() {
            self.keys.push(Vec::new());
        }
        self.hellos.push(hello);
        self.echo.extend_from_slice(whole);
        Ok(())
    }

    fn receive_key(&mut self, body: &[u8]) -> Result<(), ContextError> {
        let Some(Hello { hop, proof: HelloProof::Signed { key_hash, .. } }) = self.hellos.last()
        else {
            return Err(ContextError::Unexpected("a MBKEY"));
        };
        let mut fields = Fields::new(body, "a MBKEY");
        let of = fields.byte()?;
        let key = fields.rest();
        if of != *hop || self.keys.len() + 1 != self.hellos.len() {
            return Err(ContextError::Unexpected("a MBKEY"));
        }
        if key.len() != self.path.kem.key_len() || sha256(&[key]) != *key_hash {
            return Err(ContextError::forged_by("a MBKEY", of));
        }
        self.keys.push(key.to_vec());
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.keys.len() == self.path.hops.len()
    }

    /// Verifies every MBHELLO; `kept` is what was kept beside the TLS session that is resumed. The transcript becomes L_n. Returns y of
    /// each resumed hop.
    fn verify(&mut self, kept: &[(Identity, Resume)]) -> Result<Vec<Option<Secret>>, ContextError> {
        let mut transcript = self.transcript;
        let mut keys = Vec::new();
        super::client::each_hello(
            &self.echo,
            &self.path,
            &mut transcript,
            |hop, hello, before| {
                let kept = kept.iter().find(|(key, _)| *key == hop.party.identity);
                let kept = kept.filter(|(_, resume)| hop.resume == Some(resume.id));
                let y = kept.and_then(|(_, resume)| resume.y.clone());
                hello.verify_at_server(&self.path, before, y.as_ref())?;
                keys.push(y.filter(|_| hello.is_resumed()));
                Ok(())
            },
        )?;
        self.transcript = transcript;
        Ok(keys)
    }
}

fn respond_if_complete(
    paths: &ServerPaths,
    first: Box<First>,
    out: &mut Vec<u8>,
) -> Result<Stage, ContextError> {
    if !first.is_complete() || first.hellos.len() < first.path.hops.len() {
        return Ok(Stage::Hellos(first));
    }
    respond(paths, *first, out).map(|second| Stage::Finished(Box::new(second)))
}

/// Sends the server's flight: TLS, ECHO, the shares, SBIND.
fn respond(
    paths: &ServerPaths,
    mut first: First,
    out: &mut Vec<u8>,
) -> Result<Second, ContextError> {
    let sessions = OneSession::new(paths.sessions.clone());
    let capture = Arc::new(Capture::default());
    let alpn = path::alpn(&first.path_frame);
    let tickets = paths.tickets.min(messages::MAX_TICKETS);
    let config = paths.config.for_path(alpn, sessions.clone(), tickets.into(), capture.clone());
    let protocol = label::CONTEXTS_ALPN.as_bytes();
    let mut tls = Handshake::server_with(config, capture, protocol)?;
    let mut written = Vec::new();
    tls.receive(&first.client_hello, &mut written)?;
    // After a HelloRetryRequest there are no secrets yet.
    let exporter = tls.exporter().map_err(|_| RETRY)?;
    // rustls may look a session up and still not resume it.
    let kept = if tls.is_resumed() { sessions.found() } else { Vec::new() };
    if kept.is_empty() && first.hellos.iter().any(Hello::is_resumed) {
        return Err(ContextError::Alert { code: 3, hop: 0 });
    }
    let ys = first.verify(&kept)?;
    let start = out.len();
    put_records(out, &written, true)?;
    let mut flight = Hasher::default();
    flight.update(&out[start..]);
    let th1 = messages::th1(&first.transcript, &flight.finish());
    let secret = EndpointSecret::new(&exporter, &th1)?;
    let classes = Classes::new(&first.path);
    frame::put(out, frame::ECHO, &[&first.echo]);
    let (hops, hashes) = put_shares(&first, &classes, &secret, &th1, &ys, out)?;
    let bind = bind(paths, &th1, tickets, hashes, &ys, &secret);
    let bind = bind.encode();
    out.extend_from_slice(&bind);
    let th2 = messages::th2(&th1, &bind);
    sessions.issue(hops.clone(), th2);
    Ok(Second { path: first.path, classes, tls, secret, th2, hops, held: Vec::new() })
}

const RETRY: ContextError = ContextError::Unexpected("a ClientHello that needs a second one");

type Hops = Vec<(Identity, HopSecrets)>;

fn put_shares(
    first: &First,
    classes: &Classes,
    secret: &EndpointSecret,
    th1: &Digest,
    ys: &[Option<Secret>],
    out: &mut Vec<u8>,
) -> Result<(Hops, Vec<Digest>), ContextError> {
    let mut seed = zeroize::Zeroizing::new(Digest::default());
    SystemRandom.fill(seed.as_mut()).map_err(|_| Error::Internal("no random bytes"))?;
    let seed = Secret::new(*seed);
    let (mut hops, mut hashes) = (Vec::new(), Vec::new());
    for (number, (hop, (key, y))) in
        (1u8..).zip(first.path.hops.iter().zip(first.keys.iter().zip(ys)))
    {
        let (a, z) = (secret.a(number), schedule::z(&seed, number));
        let halves = secret.halves(classes, number, derive::SERVER_HALF);
        let share = Share { a: a.clone(), z: z.clone(), halves };
        let start = out.len();
        match y {
            Some(y) => share.put_resumed(out, y, number, th1)?,
            None => share.put_sealed(out, (first.path.kem, key), number, th1)?,
        }
        hashes.push(sha256(&[&out[start..]]));
        hops.push((hop.party.identity, HopSecrets { a, z: Some(z) }));
    }
    Ok((hops, hashes))
}

/// SBIND: by tags if all middleboxes are resumed, so that none needs a public-key operation.
fn bind(
    paths: &ServerPaths,
    th1: &Digest,
    tickets: u8,
    shares: Vec<Digest>,
    ys: &[Option<Secret>],
    secret: &EndpointSecret,
) -> Bind {
    let all: Option<Vec<&Secret>> = ys.iter().map(Option::as_ref).collect();
    let proof = match all {
        Some(ys) => {
            let covered = Bind::covered(th1, 2, tickets, &shares);
            let tag = |key: &Secret| key.derive(derive::BIND, &[]).tag(&[&covered]);
            BindProof::Tagged { hops: ys.into_iter().map(tag).collect(), client: tag(&secret.0) }
        }
        None => {
            let covered = Bind::covered(th1, 1, tickets, &shares);
            BindProof::Signed(paths.key.sign(label::SERVER_BIND, &covered))
        }
    };
    Bind { tickets, shares, proof }
}

impl Second {
    fn verify_ready(&self, hop: u8, body: &[u8]) -> Result<(), ContextError> {
        let expected = match usize::from(hop).checked_sub(1) {
            None => Some(self.secret.ready(Direction::ToServer, &self.th2)),
            Some(at) => {
                let secrets = self.hops.get(at).map(|(_, secrets)| secrets);
                secrets.and_then(|secrets| secrets.ready(Direction::ToServer, &self.th2))
            }
        };
        check_ready(hop, body, expected.as_ref().map(|tag| &tag[..]))
    }

    fn finish(self, tickets: &mut Vec<u8>) -> Result<Bound, ContextError> {
        let aes = is_aes(&self.tls)?;
        put_records(tickets, &self.held, false)?;
        let exporter = self.tls.exporter()?;
        let established = self.tls.finish()?;
        let resumed = established.resumed;
        let (peer, tail) = Tail::new(established)?;
        let Self { path, classes, secret, th2, hops, .. } = self;
        Ok(Bound { path, classes, secret, th2, hops, peer, resumed, aes, exporter, tail })
    }
}

/// Checks READY of a hop; its body must be the number and the tag only.
pub(crate) fn check_ready(
    hop: u8,
    body: &[u8],
    expected: Option<&[u8]>,
) -> Result<(), ContextError> {
    let (of, tag) = body.split_first().ok_or(ContextError::Malformed("a READY"))?;
    if *of != hop {
        return Err(ContextError::Unexpected("a READY of another party"));
    }
    let equal =
        |expected: &[u8]| aws_lc_rs::constant_time::verify_slices_are_equal(expected, tag).is_ok();
    if expected.is_some_and(equal) { Ok(()) } else { Err(ContextError::forged_by("a READY", hop)) }
}
