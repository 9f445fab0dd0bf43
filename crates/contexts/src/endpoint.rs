//! A session with middleboxes, at the client or the server.

mod event;
mod open;
mod send;
mod timers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{Bound, ClientHandshake, Step};
use super::frame;
use super::keepalive::Keepalive;
use super::messages;
use super::path::Path;
use super::schedule::Direction;
use super::server::{ServerHandshake, ServerPaths};
use super::tail::keep_tickets;
use super::tickets::{OneTicket, PathTickets};
use super::{ContextError, Role};
pub use event::PathEvent;
use levada_channel::ClientConfig;
use levada_channel::parts::DATA;
use open::Open;

/// The time limit of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The code of ALERT of a party that is busy.
const BUSY: u8 = 5;
/// What a server holds of a session that is not started yet, in bytes; it reads no further.
const MAX_HELD: usize = 64 * 1024;

/// One end of a session with middleboxes: no I/O, time and bytes are passed in.
///
/// A client may send as soon as it has verified the server; the server's records, and what
/// middleboxes add to them, are accepted after every party has proved that it is there. Every error
/// ends the session.
pub struct PathConnection {
    stage: Stage,
    side: Side,
    events: VecDeque<PathEvent>,
    out: Vec<u8>,
    /// Of the handshake.
    deadline: Option<Instant>,
    /// From READY on.
    keepalive: Option<Keepalive>,
}

enum Side {
    Client { tickets: Arc<PathTickets>, one: Arc<OneTicket> },
    Server,
}

enum Stage {
    Client(Box<ClientHandshake>),
    Server(Box<ServerHandshake>),
    Open(Box<Open>),
    Ended,
}

impl PathConnection {
    /// A client. Its first flight is ready at once. `path` is given without resume ids; they come
    /// from `tickets`.
    ///
    /// # Errors
    /// [`ContextError::Malformed`] if the path breaks a rule, [`ContextError::Tls`] if TLS failed.
    pub fn client(
        config: &ClientConfig,
        tickets: Arc<PathTickets>,
        path: Path,
        now: Instant,
    ) -> Result<Self, ContextError> {
        let mut out = Vec::new();
        let handshake = ClientHandshake::new(config, &tickets, path, &mut out)?;
        let side = Side::Client { tickets, one: handshake.store() };
        Ok(Self::new(Stage::Client(Box::new(handshake)), side, out, now))
    }

    /// A server.
    pub fn server(paths: ServerPaths, now: Instant) -> Self {
        let handshake = Box::new(ServerHandshake::new(paths));
        Self::new(Stage::Server(handshake), Side::Server, Vec::new(), now)
    }

    fn new(stage: Stage, side: Side, out: Vec<u8>, now: Instant) -> Self {
        let deadline = Some(now + HANDSHAKE_TIMEOUT);
        Self { stage, side, events: VecDeque::new(), out, deadline, keepalive: None }
    }

    /// Takes what arrived, which is decrypted in place. Returns how many bytes were consumed: whole
    /// frames. A server that holds too much of a session that is not started consumes none.
    ///
    /// # Errors
    /// Everything that ends a session. What is then left in [`Self::transmit`] must still be sent.
    pub fn receive(&mut self, input: &mut [u8], now: Instant) -> Result<usize, ContextError> {
        let mut consumed = 0;
        while self.wants_input() {
            let rest = &mut input[consumed..];
            let from = self.neighbour();
            let length = frame::length(rest).map_err(|error| error.within(rest, from));
            let Some(length) = self.fatal(length)? else { break };
            let whole = &mut rest[..length];
            let result = self.receive_frame(whole, now);
            self.fatal(result.map_err(|error| error.within(whole, from)))?;
            consumed += length;
        }
        Ok(consumed)
    }

    /// Whether [`Self::receive`] would consume a whole frame.
    pub fn wants_input(&self) -> bool {
        match &self.stage {
            Stage::Open(open) => {
                let held = open.held + open.receiver.waiting_bytes();
                open.unstarted.is_none() || held < MAX_HELD
            }
            Stage::Ended => false,
            _ => true,
        }
    }

    /// After an error the session is over; the peer gets an ALERT, which is a hint only.
    fn fatal<T>(&mut self, result: Result<T, ContextError>) -> Result<T, ContextError> {
        if let Err(error) = &result {
            if let Stage::Open(open) = &mut self.stage {
                open.sender.transmit(&mut self.out);
            }
            self.stop();
            if let Some(code) = error.alert_code() {
                frame::put(&mut self.out, frame::ALERT, &[&[code, 0]]);
            }
        }
        result
    }

    /// The party on the other side of the transport.
    fn neighbour(&self) -> Role {
        match (&self.side, &self.stage) {
            (Side::Client { .. }, _) => Role::Middlebox(1),
            (Side::Server, Stage::Server(handshake)) => handshake.neighbour(),
            (Side::Server, Stage::Open(open)) => Role::last(open.bound.keys.hops.len()),
            (Side::Server, _) => Role::Client,
        }
    }

    fn stop(&mut self) {
        self.stage = Stage::Ended;
        (self.deadline, self.keepalive) = (None, None);
    }

    fn receive_frame(&mut self, whole: &mut [u8], now: Instant) -> Result<(), ContextError> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Client(handshake) => match handshake.receive(whole, &mut self.out)? {
                Step::More(handshake) => self.stage = Stage::Client(Box::new(handshake)),
                Step::Done(bound) => self.open(*bound, Direction::ToServer, None)?,
            },
            Stage::Server(handshake) => {
                let mut tickets = Vec::new();
                match handshake.receive(whole, &mut self.out, &mut tickets)? {
                    Step::More(handshake) => self.stage = Stage::Server(Box::new(handshake)),
                    Step::Done(bound) => {
                        self.open(*bound, Direction::ToClient, Some(tickets))?;
                        self.deadline = None;
                    }
                }
            }
            Stage::Open(open) => {
                self.stage = Stage::Open(open);
                self.receive_open(whole, now)?;
            }
            Stage::Ended => return Err(ContextError::Closed),
        }
        Ok(())
    }

    fn open(
        &mut self,
        bound: Bound,
        sends: Direction,
        unstarted: Option<Vec<u8>>,
    ) -> Result<(), ContextError> {
        let peer = bound.peer;
        let resumed = bound.resumed;
        self.events.push_back(PathEvent::Bound { peer, resumed });
        self.stage = Stage::Open(Box::new(Open::new(bound, sends, unstarted)));
        Ok(())
    }

    fn receive_open(&mut self, whole: &mut [u8], now: Instant) -> Result<(), ContextError> {
        let Stage::Open(open) = &mut self.stage else { return Err(ContextError::Closed) };
        if let Some(keepalive) = &mut self.keepalive {
            keepalive.on_frame(now);
        }
        match whole[0] {
            frame::READY if open.ready.is_some() => {
                open.receive_ready(whole)?;
                if open.ready.is_none() {
                    self.deadline = None;
                    self.keepalive = Some(Keepalive::new(Role::Middlebox(1), now));
                    self.events.push_back(PathEvent::Ready);
                }
            }
            frame::ALERT => return Err(messages::alert(messages::split(whole)?.1)),
            _ if open.ready.is_some() => {
                return Err(ContextError::Unexpected("a frame before every party is there"));
            }
            frame::PING if !open.receiver.awaits_audit() => {
                let unstarted = ContextError::Unexpected("a PING before READY");
                let keepalive = self.keepalive.as_mut().ok_or(unstarted)?;
                keepalive.receive(messages::split(whole)?.1)?;
                keepalive.put(&mut self.out);
            }
            DATA if !open.receiver.awaits_audit() => {
                let before = open.bound.tail.tickets();
                open.bound.tail.receive(whole)?;
                if let Side::Client { tickets, one } = &self.side {
                    keep_tickets((tickets, one), before, &open.bound.keys);
                }
                if open.bound.tail.is_closed() && !open.receiver.is_complete() {
                    return Err(ContextError::Truncated("a close before the last record"));
                }
            }
            frame::RECORD => open.receiver.receive_record(whole)?,
            frame::AUDIT => {
                let full = open.is_full();
                open.receive_audit(whole)?;
                if full && !open.is_full() {
                    self.events.push_back(PathEvent::Writable);
                }
            }
            _ => return Err(ContextError::Unexpected("a frame in a session")),
        }
        open.hand_up(&mut self.events);
        Ok(())
    }

    /// How many bytes wait to be sent.
    pub fn pending(&self) -> usize {
        let sealed = match &self.stage {
            Stage::Open(open) => open.sender.pending(),
            _ => 0,
        };
        self.out.len() + sealed
    }

    /// Appends what is to be sent to `out`.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        if let Some(keepalive) = &mut self.keepalive {
            keepalive.on_transmit();
        }
        if out.is_empty() {
            std::mem::swap(out, &mut self.out);
        } else {
            out.append(&mut self.out);
        }
        if let Stage::Open(open) = &mut self.stage
            && open.unstarted.is_none()
        {
            open.sender.transmit(out);
        }
    }

    /// The memory, in bytes, of what was received and not taken by [`Self::poll_event`] yet, of
    /// keys, and of what waits to be sent; about.
    pub fn memory(&self) -> usize {
        let stage = match &self.stage {
            Stage::Server(handshake) => handshake.memory(),
            Stage::Open(open) => {
                open.held + open.receiver.memory() + open.sender.memory() + open.bound.tail.memory()
            }
            Stage::Client(_) | Stage::Ended => 0,
        };
        self.out.capacity() + stage
    }

    /// Ends the session because this side is busy, and frees what was received. The peer gets an
    /// ALERT, which is a hint only.
    pub fn busy(&mut self) {
        if !matches!(self.stage, Stage::Ended) {
            self.stop();
            frame::put(&mut self.out, frame::ALERT, &[&[BUSY, 0]]);
        }
        self.events.clear();
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<PathEvent> {
        self.events.pop_front()
    }

    /// The transport has ended.
    ///
    /// # Errors
    /// [`ContextError::Truncated`] if the session was not complete.
    pub fn receive_end(&mut self) -> Result<(), ContextError> {
        let complete = match &self.stage {
            Stage::Open(open) => open.bound.tail.is_closed(),
            _ => false,
        };
        self.stop();
        if complete { Ok(()) } else { Err(ContextError::Truncated("the transport has ended")) }
    }

    /// Keying material that only the endpoints share (RFC 8446 section 7.5).
    ///
    /// # Errors
    /// [`ContextError::State`] if the session is not open; [`ContextError::Tls`] if `out` is longer
    /// than the hash can give.
    pub fn export(&self, label: &str, out: &mut [u8]) -> Result<(), ContextError> {
        match &self.stage {
            Stage::Open(open) => Ok(open.bound.exporter.export(label, b"", out)?),
            _ => Err(NOT_OPEN),
        }
    }

    /// What a malicious endpoint has.
    #[cfg(test)]
    pub(crate) fn bound(&mut self) -> Option<&mut Bound> {
        match &mut self.stage {
            Stage::Open(open) => Some(&mut open.bound),
            _ => None,
        }
    }

    /// The path with the rights that both endpoints have granted, once it is bound.
    pub fn path(&self) -> Option<&Path> {
        match &self.stage {
            Stage::Open(open) => Some(&open.bound.keys.path),
            _ => None,
        }
    }
}

const NOT_OPEN: ContextError = ContextError::State("the session is not open");
