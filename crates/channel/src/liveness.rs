//! Timeouts of the handshake and of an idle connection, keep-alive PINGs, and the round-trip time.

use std::time::{Duration, Instant};

use crate::{Error, Options};

/// Time limit for the peer's first flight.
const FIRST_FLIGHT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the whole handshake, the peer's HELLO included.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The stage of a connection, which selects its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer's first flight was not received in full.
    FirstFlight,
    /// The peer's HELLO was not received.
    Handshake,
    /// The peer's HELLO was received.
    Open,
}

#[derive(Clone, Copy)]
enum Ping {
    Idle,
    Wanted,
    Sent(Instant),
}

/// The timers of one connection.
pub(crate) struct Liveness {
    started: Instant,
    last_record: Instant,
    idle_timeout: Duration,
    keep_alive: Duration,
    ping: Ping,
    /// The number of the latest PING.
    token: u64,
    /// When this side sent its last flight of the handshake.
    flight: Option<Instant>,
    /// From that flight to the peer's last one: the round trip, and the peer's cryptography.
    handshake_rtt: Option<Duration>,
    rtt: Option<Duration>,
}

impl Liveness {
    pub(crate) fn new(options: &Options, now: Instant) -> Self {
        Self {
            started: now,
            last_record: now,
            idle_timeout: options.idle_timeout,
            keep_alive: options.keep_alive,
            ping: Ping::Idle,
            token: 0,
            flight: None,
            handshake_rtt: None,
            rtt: None,
        }
    }

    /// A whole record was received.
    pub(crate) fn on_record(&mut self, now: Instant) {
        self.last_record = now;
    }

    /// The smoothed round-trip time (RFC 6298 section 2); before the first PONG, the handshake's.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt.or(self.handshake_rtt)
    }

    /// A flight of the handshake was sent.
    pub(crate) fn on_flight(&mut self, now: Instant) {
        self.flight = Some(now);
    }

    /// The peer's last flight was received.
    pub(crate) fn on_established(&mut self, now: Instant) {
        self.handshake_rtt = self.flight.map(|sent| now.saturating_duration_since(sent));
    }

    /// Schedules a PING, unless one is scheduled or unanswered.
    pub(crate) fn request_ping(&mut self) {
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

    /// Handles a PONG.
    pub(crate) fn on_pong(&mut self, token: [u8; 8], now: Instant) -> Result<(), Error> {
        let Ping::Sent(sent) = self.ping else {
            return Err(Error::Protocol("a PONG without a PING"));
        };
        if token != self.token.to_be_bytes() {
            return Err(Error::Protocol("a PONG without a PING"));
        }
        self.ping = Ping::Idle;
        let sample = now.saturating_duration_since(sent);
        self.rtt = Some(self.rtt.map_or(sample, |rtt| (7 * rtt + sample) / 8));
        Ok(())
    }

    /// The time to call [`Self::check`].
    pub(crate) fn deadline(&self, stage: Stage) -> Instant {
        match stage {
            Stage::FirstFlight => self.started + FIRST_FLIGHT_TIMEOUT,
            Stage::Handshake => self.started + HANDSHAKE_TIMEOUT,
            Stage::Open => match self.ping {
                Ping::Idle => self.last_record + self.keep_alive.min(self.idle_timeout),
                Ping::Wanted | Ping::Sent(_) => self.last_record + self.idle_timeout,
            },
        }
    }

    /// Returns an error if a timeout has expired, and schedules a PING if the keep-alive time has.
    pub(crate) fn check(&mut self, stage: Stage, now: Instant) -> Result<(), Error> {
        if now < self.deadline(stage) {
            return Ok(());
        }
        if stage != Stage::Open {
            return Err(Error::HandshakeTimeout);
        }
        if now >= self.last_record + self.idle_timeout {
            return Err(Error::Idle);
        }
        self.request_ping();
        Ok(())
    }
}
