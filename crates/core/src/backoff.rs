//! Pauses between attempts to reconnect.

use std::time::Duration;

/// The pauses between attempts to reconnect: 1 s, then twice the previous one, at most 30 s.
#[derive(Clone, Debug)]
pub struct Backoff(Duration);

impl Backoff {
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(30);

    /// The pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = Self::LONGEST.min(2 * pause);
        pause
    }

    /// The pause after a connection that lasted for `lasted`. One that lasted longer than the
    /// longest pause starts the sequence again.
    pub fn pause_after(&mut self, lasted: Duration) -> Duration {
        if lasted > Self::LONGEST {
            self.reset();
        }
        self.pause()
    }

    /// Starts the sequence again, after a success.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self(Self::SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest_pause_and_starts_again() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..7).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.pause_after(Duration::from_secs(30)).as_secs(), 30);
        assert_eq!(backoff.pause_after(Duration::from_secs(31)).as_secs(), 1);
        assert_eq!(backoff.pause().as_secs(), 2);
        backoff.reset();
        assert_eq!(backoff.pause().as_secs(), 1);
    }
}
