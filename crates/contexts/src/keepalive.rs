//! The liveness of a neighbour, by PING and PONG (`docs/protocol.md`, "PING and PONG").

use std::time::{Duration, Instant};

use super::frame::{self, Fields};
use super::{ContextError, Role};
use levada_channel::parts::{IDLE_TIMEOUT, KEEP_ALIVE};

/// The first byte of a body: asks for a [`PONG`].
const PING: u8 = 1;
/// Answers a [`PING`].
const PONG: u8 = 2;
/// Not answered: from a party that reads nothing for now, so that it would not read a PONG.
const ALIVE: u8 = 3;
/// Silence until a PING; also the time between two frames of kind [`ALIVE`].
const INTERVAL: Duration = KEEP_ALIVE;
/// Silence until the neighbour counts as dead.
const LIMIT: Duration = IDLE_TIMEOUT;

/// A number that a PONG returns.
type Token = [u8; 8];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ping {
    Idle,
    Due,
    Sent,
}

/// The liveness of the neighbour on one connection, from READY on.
pub(crate) struct Keepalive {
    neighbour: Role,
    /// When its last whole frame was received, or this side began to read again.
    heard: Instant,
    /// Whether this side reads. If not, silence means nothing.
    reading: bool,
    /// When the last frame of kind [`ALIVE`] was due.
    shown: Instant,
    alive_due: bool,
    ping: Ping,
    /// The number of the latest PING.
    token: u64,
    /// What the neighbour asked for, while it must not be sent.
    pong: Option<Token>,
    /// The last PONG was not taken for sending.
    pong_pending: bool,
}

impl Keepalive {
    pub(crate) fn new(neighbour: Role, now: Instant) -> Self {
        Self {
            neighbour,
            heard: now,
            reading: true,
            shown: now,
            alive_due: false,
            ping: Ping::Idle,
            token: 0,
            pong: None,
            pong_pending: false,
        }
    }

    /// A whole frame was received.
    pub(crate) fn on_frame(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Takes the body of a frame of type [`frame::PING`].
    pub(crate) fn receive(&mut self, body: &[u8]) -> Result<(), ContextError> {
        let mut fields = Fields::new(body, "a PING");
        let kind = fields.byte()?;
        let token: Token = fields.array()?;
        match kind {
            // The neighbour waits for the PONG, so the last one has left. That also bounds what is
            // queued for it.
            PING if self.pong.is_some() || self.pong_pending => {
                return Err(ContextError::Unexpected("a second PING before the answer"));
            }
            PING => self.pong = Some(token),
            PONG if self.ping == Ping::Sent && token == self.token.to_be_bytes() => {
                self.ping = Ping::Idle;
            }
            PONG => return Err(ContextError::Unexpected("a PONG without a PING")),
            ALIVE if token == Token::default() => {}
            _ => return Err(fields.error()),
        }
        fields.end()
    }

    /// Appends what is due. Called only where a frame may stand: not between a MARK and its last
    /// audit.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>) {
        if let Some(token) = self.pong.take() {
            frame::put(out, frame::PING, &[&[PONG], &token]);
            self.pong_pending = true;
        }
        if self.ping == Ping::Due {
            self.token += 1;
            frame::put(out, frame::PING, &[&[PING], &self.token.to_be_bytes()]);
            self.ping = Ping::Sent;
        }
        if std::mem::take(&mut self.alive_due) {
            frame::put(out, frame::PING, &[&[ALIVE], &Token::default()]);
        }
    }

    /// What was appended is taken for sending.
    pub(crate) fn on_transmit(&mut self) {
        self.pong_pending = false;
    }

    /// Whether this side reads what the neighbour sends. While it does not, because what it has is
    /// not taken, the neighbour's silence means nothing, and this side shows from time to time that
    /// it is there.
    pub(crate) fn set_reading(&mut self, reading: bool, now: Instant) {
        if reading && !self.reading {
            self.heard = now;
        }
        self.reading = reading;
    }

    /// The time to call [`Self::check`].
    pub(crate) fn timeout(&self) -> Instant {
        match self.ping {
            _ if !self.reading => self.shown + INTERVAL,
            Ping::Idle => self.heard + INTERVAL,
            Ping::Due | Ping::Sent => self.heard + LIMIT,
        }
    }

    /// Schedules a PING if the neighbour has been silent.
    ///
    /// # Errors
    /// [`ContextError::Timeout`] if it counts as dead.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), ContextError> {
        if now < self.timeout() {
            return Ok(());
        }
        if !self.reading {
            self.shown = now;
            self.alive_due = true;
            return Ok(());
        }
        if now >= self.heard + LIMIT {
            return Err(ContextError::Timeout {
                what: "the answer to a PING",
                from: self.neighbour,
            });
        }
        self.ping = Ping::Due;
        Ok(())
    }
}
