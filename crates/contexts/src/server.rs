//! The server's side of the handshake with middleboxes.

mod first;
mod paths;
mod respond;

use super::client::Step;
use super::frame;
use super::messages;
use super::{ContextError, Role};
use first::First;
use levada_channel::parts::{ALERT, DATA, HANDSHAKE};
pub use paths::{PathPolicy, ServerPaths};
use respond::{Second, respond};

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

    /// The party on the other side of the transport; before PATH it is not known how many are on
    /// the way.
    pub(crate) fn neighbour(&self) -> Role {
        match &self.stage {
            Stage::Path => Role::Client,
            Stage::ClientHello(first) | Stage::Hellos(first) => Role::last(first.path.hops.len()),
            Stage::Finished(second) | Stage::Ready(second, _) => Role::last(second.keys.hops.len()),
        }
    }

    /// Takes a whole frame. Appends the server's flight to `out` when the first one is complete. At
    /// the end `tickets` are the TLS records that must follow the server's READY.
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
