//! The server's flight (TLS, ECHO, the shares, SBIND), and what is kept after it.

use std::sync::Arc;

use levada_core::{Digest, Hasher, Random, SystemRandom, label, label::derive, sha256};

use super::first::First;
use super::paths::ServerPaths;
use crate::ContextError;
use crate::client::{Bound, is_aes};
use crate::frame;
use crate::messages::{self, Bind, BindProof, Hello, Share};
use crate::path;
use crate::schedule::{self, Classes, Direction, EndpointKeys, EndpointSecret, HopSecrets, Secret};
use crate::tail::{Tail, put_records};
use crate::tickets::OneSession;
use levada_channel::Error;
use levada_channel::parts::Capture;
use levada_channel::parts::Handshake;

/// The state of the handshake after the server's flight.
pub(super) struct Second {
    pub(super) tls: Handshake,
    pub(super) keys: Arc<EndpointKeys>,
    /// The tickets that rustls has written.
    pub(super) held: Vec<u8>,
}

impl Second {
    /// Verifies READY of a hop; 0 is the client's.
    pub(super) fn verify_ready(&self, hop: u8, body: &[u8]) -> Result<(), ContextError> {
        let expected = self.keys.ready(hop, Direction::ToServer);
        messages::check_ready(hop, body, expected.as_ref().map(|tag| &tag[..]))
    }

    /// Ends the handshake. Appends the TLS records of the tickets to `tickets`.
    pub(super) fn finish(self, tickets: &mut Vec<u8>) -> Result<Bound, ContextError> {
        put_records(tickets, &self.held, false)?;
        let exporter = self.tls.exporter()?;
        let peer = self.tls.peer()?;
        let resumed = self.tls.is_resumed();
        Ok(Bound { keys: self.keys, peer, resumed, exporter, tail: Tail::new(self.tls) })
    }
}

/// Sends the server's flight: TLS, ECHO, the shares, SBIND.
pub(super) fn respond(
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
    #[cfg(test)]
    crate::tests::probe::public_key_operation();
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
    let (hops, hashes) = put_shares(paths, &first, (&classes, &secret), &th1, &ys, out)?;
    let bind = bind(paths, &th1, tickets, hashes, &ys, &secret);
    let bind = bind.encode();
    out.extend_from_slice(&bind);
    let th2 = messages::th2(&th1, &bind);
    let path = first.path;
    let aes = is_aes(&tls)?;
    let keys = Arc::new(EndpointKeys { path, classes, secret, th2, aes, hops });
    sessions.issue(keys.clone());
    Ok(Second { tls, keys, held: Vec::new() })
}

const RETRY: ContextError = ContextError::Unexpected("a ClientHello that needs a second one");

fn put_shares(
    #[cfg_attr(not(test), expect(unused_variables))] paths: &ServerPaths,
    first: &First,
    (classes, secret): (&Classes, &EndpointSecret),
    th1: &Digest,
    ys: &[Option<Secret>],
    out: &mut Vec<u8>,
) -> Result<(Vec<HopSecrets>, Vec<Digest>), ContextError> {
    let mut seed = zeroize::Zeroizing::new(Digest::default());
    SystemRandom.fill(seed.as_mut()).map_err(|_| Error::Internal("no random bytes"))?;
    let seed = Secret::new(*seed);
    let mut hops = Vec::new();
    let mut hashes = Vec::new();
    for (number, (key, y)) in (1u8..).zip(first.keys.iter().zip(ys)) {
        let a = secret.a(number);
        let z = schedule::z(&seed, number);
        let halves = secret.halves(classes, number, derive::SERVER_HALF);
        let share = Share { a: a.clone(), z: z.clone(), halves };
        #[cfg(test)]
        let share = paths.altered(number, share);
        let start = out.len();
        match y {
            Some(y) => share.put_resumed(out, y, number, th1)?,
            None => share.put_sealed(out, (first.path.kem, key), number, th1)?,
        }
        hashes.push(sha256(&[&out[start..]]));
        hops.push(HopSecrets { a, z: Some(z) });
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

#[cfg(test)]
impl ServerPaths {
    fn altered(&self, number: u8, mut share: Share) -> Share {
        if let Some(alter) = &self.alter_share {
            alter(number, &mut share);
        }
        share
    }
}
