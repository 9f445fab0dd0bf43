//! Lost packets, and the time until their content arrives all the same.

use std::collections::HashMap;
use std::time::Duration;

use super::scenario::{Recovery, Scenario};
use crate::PeerId;
use crate::message::Message;
use crate::random::Random;

/// The payload of a packet of 1,500 bytes.
pub(super) const PACKET: u64 = 1448;
/// Linux's least retransmission timeout beyond the round trip.
const TCP_TIMEOUT: Duration = Duration::from_millis(200);
/// The delay of acknowledgements that QUIC allows for (RFC 9000, section 18.2).
const ACK_DELAY: Duration = Duration::from_millis(25);
/// The timers of "Trickle: A PSP File Sharing Protocol" (section "Handling Packet Drops"): for a
/// registration, for everything else, and the time between two looks at them.
const REGISTRATION_TIMER: Duration = Duration::from_secs(1);
const CHUNK_TIMER: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);

/// From, to, and whether it is the data stream.
pub(super) type StreamId = (PeerId, PeerId, bool);

/// The streams of the simulated network.
pub(super) struct Streams {
    random: Random,
    /// When the last message of a stream arrives.
    last: HashMap<StreamId, Duration>,
}

/// When something arrives, and how often it is sent.
pub(super) struct Delivery {
    pub(super) at: Duration,
    pub(super) sent: u32,
}

impl Streams {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x6c6f_7373), last: HashMap::new() }
    }

    /// When a control message arrives that is sent at `now`.
    pub(super) fn message(
        &mut self,
        scenario: &Scenario,
        now: Duration,
        (from, to): (PeerId, PeerId),
        message: &Message,
    ) -> Duration {
        let is_registration = match message {
            Message::Have(runs) => runs.is_empty(),
            Message::Listening(_) => true,
            _ => false,
        };
        let timer = if is_registration { REGISTRATION_TIMER } else { CHUNK_TIMER };
        let arrives = now + scenario.delay;
        self.deliver(scenario, (arrives, 1), (from, to, false), timer).at
    }

    /// When a chunk arrives that leaves so that it would arrive at `arrives`.
    pub(super) fn chunk(
        &mut self,
        scenario: &Scenario,
        arrives: Duration,
        (from, to): (PeerId, PeerId),
        bytes: u64,
    ) -> Delivery {
        let packets = bytes.div_ceil(PACKET).max(1) as u32;
        self.deliver(scenario, (arrives, packets), (from, to, true), CHUNK_TIMER)
    }

    fn deliver(
        &mut self,
        scenario: &Scenario,
        (arrives, packets): (Duration, u32),
        stream: StreamId,
        timer: Duration,
    ) -> Delivery {
        let recovery = if stream.2 { scenario.data } else { scenario.control };
        // At least one of the packets.
        let lost = 1.0 - (1.0 - scenario.loss).powi(packets as i32);
        let mut at = arrives;
        let mut sent = 1;
        while self.random.chance(lost) {
            at += recovery.wait(scenario.delay * 2, sent, timer, at);
            sent += 1;
        }
        if recovery != Recovery::FixedTimers {
            let last = self.last.entry(stream).or_default();
            at = at.max(*last);
            *last = at;
        }
        Delivery { at, sent }
    }
}

impl Recovery {
    /// The time from the arrival that a lost packet would have had until that of its repetition,
    /// which is the one with this number.
    fn wait(
        self,
        round_trip: Duration,
        repetition: u32,
        timer: Duration,
        at: Duration,
    ) -> Duration {
        let doubled = 1 << (repetition - 1).min(6);
        match self {
            Self::Tcp => (round_trip + TCP_TIMEOUT) * doubled,
            Self::Quic => (round_trip * 2 + ACK_DELAY) * doubled,
            Self::FixedTimers => {
                let expires = at + timer;
                let tick = TICK.as_nanos();
                let late = (tick - expires.as_nanos() % tick) % tick;
                timer + Duration::from_nanos(late as u64) + round_trip
            }
        }
    }
}
