//! The properties of a link.

use std::time::Duration;

use crate::LabError;

/// Random packet loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each packet with this probability, independently.
    Bernoulli(f64),
    /// In bursts: a chain of two states, good and bad, that may change state before each packet
    /// (Gilbert 1960, Elliott 1963). All four are probabilities.
    GilbertElliott {
        /// Good becomes bad.
        to_bad: f64,
        /// Bad becomes good: bursts last 1 / `to_good` packets.
        to_good: f64,
        /// Loss in the good state.
        loss_good: f64,
        /// Loss in the bad state.
        loss_bad: f64,
    },
}

/// A change of a link in use; `None` for no change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The one-way delay.
    pub delay: Option<Duration>,
    /// See [`Link::jitter`].
    pub jitter: Option<Duration>,
    /// Bits per second. Ignored if the link was created without a rate.
    pub rate: Option<u64>,
    /// See [`Loss`].
    pub loss: Option<Loss>,
}

/// The properties of a link in each direction. The default emulates nothing.
///
/// ```
/// use std::time::Duration;
/// use levada_lab::{Link, Loss};
///
/// let link = Link::new()
///     .delay(Duration::from_millis(20))
///     .rate(100_000_000)
///     .loss(Loss::Bernoulli(0.01))
///     .seed(7);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    pub(crate) rate: Option<u64>,
    pub(crate) loss: Loss,
    pub(crate) queue: Option<u64>,
    pub(crate) reorder: f64,
    pub(crate) duplicate: f64,
    pub(crate) mtu: Option<u32>,
    pub(crate) seed: u64,
    pub(crate) schedule: Vec<(Duration, Change)>,
    pub(crate) reverse: Option<Box<Link>>,
}

impl Link {
    /// A link without emulation.
    pub fn new() -> Self {
        Self::default()
    }

    /// The one-way delay.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Each packet's delay is uniformly distributed between `delay − jitter` (at least 0) and
    /// `delay + jitter`. Packets may therefore be reordered, as with netem.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Bits per second, counted over IP packets (headers of IP included, no others; `netem` and
    /// `tbf` count exactly that only of packets as long as the MTU, and give shorter ones a little
    /// less).
    #[must_use]
    pub fn rate(mut self, rate: u64) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Random loss, applied before the rate limit.
    #[must_use]
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// The length of the queue in front of the rate limit, in bytes; a packet that does not fit is
    /// dropped. No effect without a rate. Default: what the rate sends in twice the delay plus 50
    /// ms, at least 64 KiB.
    #[must_use]
    pub fn queue(mut self, bytes: u64) -> Self {
        self.queue = Some(bytes);
        self
    }

    /// The probability that a packet skips the delay, and so overtakes packets in flight.
    #[must_use]
    pub fn reorder(mut self, probability: f64) -> Self {
        self.reorder = probability;
        self
    }

    /// The probability that a packet is sent twice.
    #[must_use]
    pub fn duplicate(mut self, probability: f64) -> Self {
        self.duplicate = probability;
        self
    }

    /// The longest IP packet, in bytes, from 68 to 65,535. Default 1500.
    #[must_use]
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// The seed of the random generators: with the same seed, the same packets of a direction (by
    /// number) are lost, duplicated and reordered. Not with netem, which uses the kernel's
    /// generator.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Changes by time since the creation of the link or `LinkHandle::restart_schedule`. Queued
    /// packets keep their delivery times.
    #[must_use]
    pub fn schedule(mut self, schedule: Vec<(Duration, Change)>) -> Self {
        self.schedule = schedule;
        self
    }

    /// The properties of the reverse direction, if they differ. Its `reverse` and `mtu` are
    /// ignored.
    #[must_use]
    pub fn reverse(mut self, back: Link) -> Self {
        self.reverse = Some(Box::new(back));
        self
    }

    /// The properties of the reverse direction.
    pub(crate) fn back(&self) -> &Link {
        self.reverse.as_deref().unwrap_or(self)
    }

    /// The link after a change of both directions.
    pub(crate) fn changed(&self, change: &Change) -> Self {
        let mut link = self.clone();
        link.delay = change.delay.unwrap_or(link.delay);
        link.jitter = change.jitter.unwrap_or(link.jitter);
        link.rate = change.rate.or(link.rate).filter(|_| self.rate.is_some());
        link.loss = change.loss.unwrap_or(link.loss);
        link.reverse = self.reverse.as_ref().map(|back| Box::new(back.changed(change)));
        link
    }

    pub(crate) fn mtu_or_default(&self) -> u32 {
        self.mtu.unwrap_or(1500)
    }

    /// The length of the queue at `rate` bits per second, in bytes.
    pub(crate) fn queue_or_default(&self, rate: u64) -> u64 {
        let time = 2 * self.delay.as_micros() + 50_000;
        let bytes = u128::from(rate) * time / 8_000_000;
        self.queue.unwrap_or_else(|| u64::try_from(bytes).unwrap_or(u64::MAX).max(64 * 1024))
    }

    /// Checks both directions.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        self.check_one()?;
        self.back().check_one()
    }

    fn check_one(&self) -> Result<(), LabError> {
        let invalid = |text: String| Err(LabError::Invalid(text));
        let changes = self.schedule.iter().map(|(_, change)| change);
        if self.rate == Some(0) || changes.clone().any(|change| change.rate == Some(0)) {
            return invalid("a rate of 0 sends nothing: give at least 1 bit/s".into());
        }
        if self.rate.is_none() && changes.clone().any(|change| change.rate.is_some()) {
            return invalid(
                "the schedule changes a rate that the link does not have: give one".into(),
            );
        }
        if !(68..=65_535).contains(&self.mtu_or_default()) {
            return invalid(format!("an MTU of {} bytes: give 68 to 65535", self.mtu_or_default()));
        }
        let losses = changes.filter_map(|change| change.loss.as_ref()).chain([&self.loss]);
        let mut chances = vec![self.reorder, self.duplicate];
        chances.extend(losses.flat_map(Loss::chances));
        match chances.iter().find(|chance| !(0.0..=1.0).contains(*chance)) {
            Some(chance) => invalid(format!("a probability of {chance}: give 0 to 1")),
            None => Ok(()),
        }
    }
}

impl Loss {
    fn chances(&self) -> Vec<f64> {
        match *self {
            Self::None => Vec::new(),
            Self::Bernoulli(chance) => vec![chance],
            Self::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                vec![to_bad, to_good, loss_good, loss_bad]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_links_are_refused() {
        let ten = Change { rate: Some(10), ..Change::default() };
        for link in [
            Link::new().rate(0),
            Link::new().mtu(67),
            Link::new().loss(Loss::Bernoulli(1.1)),
            Link::new().duplicate(-0.1),
            Link::new().reorder(f64::NAN),
            Link::new().schedule(vec![(Duration::ZERO, ten)]),
            Link::new().reverse(Link::new().rate(0)),
        ] {
            assert!(link.check().is_err(), "{link:?}");
        }
        assert!(Link::new().rate(1).loss(Loss::Bernoulli(1.0)).check().is_ok());
    }

    #[test]
    fn the_default_queue_holds_two_delays_and_50_ms() {
        let link = Link::new().delay(Duration::from_millis(25));
        assert_eq!(link.queue_or_default(80_000_000), 1_000_000);
        assert_eq!(link.queue_or_default(8000), 64 * 1024);
        assert_eq!(link.queue(5).queue_or_default(8000), 5);
    }
}
