//! Time: how long the handshake may take, when to ask for a sign of life, how far away the peer is.

use std::time::{Duration, Instant};

use crate::{Error, Options};

/// For the peer's first flight.
const FIRST_FLIGHT: Duration = Duration::from_secs(5);
/// For the whole handshake, the peer's HELLO included.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer's first flight has not come in full.
    Silent,
    /// The peer's HELLO has not come.
    Handshake,
    /// In use.
    Open,
}

#[derive(Clone, Copy)]
enum Ping {
    Idle,
    Wanted,
    Sent(Instant),
}

/// The clock of one connection.
pub(crate) struct Liveness {
    started: Instant,
    heard: Instant,
    idle_timeout: Duration,
    keep_alive: Duration,
    ping: Ping,
    /// The number of the present PING.
    token: u64,
    rtt: Option<Duration>,
}

impl Liveness {
    pub(crate) fn new(options: &Options, now: Instant) -> Self {
        Self {
            started: now,
            heard: now,
            idle_timeout: options.idle_timeout,
            keep_alive: options.keep_alive,
            ping: Ping::Idle,
            token: 0,
            rtt: None,
        }
    }

    /// A whole record has come.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The smoothed round-trip time (RFC 6298 section 2).
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// A PING is to go out, unless one is on its way.
    pub(crate) fn want_ping(&mut self) {
        if let Ping::Idle = self.ping {
            self.ping = Ping::Wanted;
        }
    }

    pub(crate) fn ping_due(&self) -> bool {
        matches!(self.ping, Ping::Wanted)
    }

    /// The bytes of the PING that is due.
    pub(crate) fn take_ping(&mut self, now: Instant) -> Option<[u8; 8]> {
        if !self.ping_due() {
            return None;
        }
        self.ping = Ping::Sent(now);
        self.token += 1;
        Some(self.token.to_be_bytes())
    }

    /// A PONG has come.
    pub(crate) fn pong(&mut self, token: [u8; 8], now: Instant) -> Result<(), Error> {
        let Ping::Sent(sent) = self.ping else {
            return Err(Error::Protocol("a PONG that nobody asked for"));
        };
        if token != self.token.to_be_bytes() {
            return Err(Error::Protocol("a PONG that nobody asked for"));
        }
        self.ping = Ping::Idle;
        let sample = now.saturating_duration_since(sent);
        self.rtt = Some(self.rtt.map_or(sample, |rtt| (7 * rtt + sample) / 8));
        Ok(())
    }

    /// When [`Self::check`] should be called.
    pub(crate) fn deadline(&self, stage: Stage) -> Instant {
        match stage {
            Stage::Silent => self.started + FIRST_FLIGHT,
            Stage::Handshake => self.started + HANDSHAKE,
            Stage::Open => match self.ping {
                Ping::Idle => self.heard + self.keep_alive.min(self.idle_timeout),
                Ping::Wanted | Ping::Sent(_) => self.heard + self.idle_timeout,
            },
        }
    }

    /// Ends the wait of what has taken too long, and asks for a sign of life where it is time.
    pub(crate) fn check(&mut self, stage: Stage, now: Instant) -> Result<(), Error> {
        if now < self.deadline(stage) {
            return Ok(());
        }
        if stage != Stage::Open {
            return Err(Error::HandshakeTimeout);
        }
        if now >= self.heard + self.idle_timeout {
            return Err(Error::Idle);
        }
        self.want_ping();
        Ok(())
    }
}
