//! The server's side of the handshake with middleboxes.

mod first;
mod respond;

use std::sync::Arc;

use levada_core::SecretKey;

use super::client::{Bound, Step};
use super::frame;
use super::messages;
use super::path::Path;
use super::schedule::{Direction, EndpointKeys};
use super::tail::{Tail, put_records};
use super::tickets::PathSessions;
use super::{ContextError, Role};
use first::First;
use levada_channel::ServerConfig;
use levada_channel::parts::Handshake;
use levada_channel::parts::{ALERT, DATA, HANDSHAKE};
use respond::respond;

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
    /// What a malicious server does to the share of each middlebox before it seals it.
    #[cfg(test)]
    pub(crate) alter_share: Option<Arc<AlterShare>>,
}

/// Changes the share of a middlebox, by its number.
#[cfg(test)]
pub(crate) type AlterShare = dyn Fn(u8, &mut messages::Share) + Send + Sync;

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

/// What is kept after the server's flight.
struct Second {
    tls: Handshake,
    keys: Arc<EndpointKeys>,
    /// The tickets that rustls has written.
    held: Vec<u8>,
}

impl ServerHandshake {
    pub(crate) fn new(paths: ServerPaths) -> Self {
        Self { paths, stage: Stage::Path }
    }

    /// What the server waits for.
    pub(crate) fn awaited(&self) -> (&'static str, Role) {
        match &self.stage {
            Stage::Path => ("PATH", Role::Client),
            Stage::ClientHello(_) => ("ClientHello", Role::Client),
            Stage::Hellos(first) => first.awaited(),
            Stage::Finished(_) => ("its TLS Finished", Role::Client),
            Stage::Ready(second, number) => ("READY", Role::at(*number, second.keys.hops.len())),
        }
    }

    /// Memory in bytes, about.
    pub(crate) fn memory(&self) -> usize {
        match &self.stage {
            Stage::Path => 0,
            Stage::ClientHello(first) | Stage::Hellos(first) => first.memory(),
            Stage::Finished(second) | Stage::Ready(second, _) => second.held.capacity(),
        }
    }

    /// The party on the other side of the transport; before PATH it is not known how many are on the way.
    pub(crate) fn neighbour(&self) -> Role {
        match &self.stage {
            Stage::Path => Role::Client,
            Stage::ClientHello(first) | Stage::Hellos(first) => Role::last(first.path.hops.len()),
            Stage::Finished(second) | Stage::Ready(second, _) => Role::last(second.keys.hops.len()),
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
            (frame::PATH, Stage::Path) => Stage::ClientHello(Box::new(First::new(&paths, whole)?)),
            (HANDSHAKE, Stage::ClientHello(mut first)) => {
                first.receive_client_hello(whole);
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
                if usize::from(hop) == second.keys.hops.len() {
                    return second.finish(tickets).map(|bound| Step::Done(Box::new(bound)));
                }
                Stage::Ready(second, hop + 1)
            }
            (frame::ALERT, _) => return Err(messages::alert(body)),
            _ => return Err(ContextError::Unexpected("a frame in the client's handshake")),
        };
        Ok(Step::More(Self { paths, stage: next }))
    }
}

fn respond_if_complete(
    paths: &ServerPaths,
    first: Box<First>,
    out: &mut Vec<u8>,
) -> Result<Stage, ContextError> {
    if !first.is_complete() {
        return Ok(Stage::Hellos(first));
    }
    respond(paths, *first, out).map(|second| Stage::Finished(Box::new(second)))
}

impl Second {
    fn verify_ready(&self, hop: u8, body: &[u8]) -> Result<(), ContextError> {
        let expected = self.keys.ready(hop, Direction::ToServer);
        messages::check_ready(hop, body, expected.as_ref().map(|tag| &tag[..]))
    }

    fn finish(self, tickets: &mut Vec<u8>) -> Result<Bound, ContextError> {
        put_records(tickets, &self.held, false)?;
        let exporter = self.tls.exporter()?;
        let peer = self.tls.peer()?;
        let resumed = self.tls.is_resumed();
        Ok(Bound { keys: self.keys, peer, resumed, exporter, tail: Tail::new(self.tls) })
    }
}
