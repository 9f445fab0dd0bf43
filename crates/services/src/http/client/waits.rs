//! How long an exchange waits for its local client. A client that sends or takes a body slowly
//! keeps a session, of which there are few.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest wait for the next bytes.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// How far the waits of an exchange may exceed those of a client at [`LEAST_RATE`].
const GRACE: Duration = Duration::from_secs(5);
/// The bytes in a second of a client that lets no other wait. More of them give no credit for
/// later: a burst only fills buffers.
const LEAST_RATE: u64 = 16 * 1024;
/// Between two checks.
const INTERVAL: Duration = Duration::from_millis(500);

/// The waits of one exchange for its local client. Clones share them.
#[derive(Clone, Default)]
pub(in crate::http) struct ClientWaits(Arc<Mutex<Waits>>);

#[derive(Default)]
struct Waits {
    /// A body waits for the client since then.
    since: Option<Instant>,
    /// The waits that have ended, without those that the bytes since account for.
    excess: Duration,
}

impl Waits {
    fn is_too_long(&self, is_crowded: bool) -> bool {
        let now = self.since.map(|since| since.elapsed()).unwrap_or_default();
        now > IDLE_LIMIT || is_crowded && !now.is_zero() && self.excess + now > GRACE
    }
}

impl ClientWaits {
    /// A body begins to wait for the client.
    pub(in crate::http) fn wait(&self) {
        self.lock().since.get_or_insert_with(Instant::now);
    }

    /// The client has sent or taken so many bytes.
    pub(in crate::http) fn advance(&self, bytes: usize) {
        let mut waits = self.lock();
        if let Some(since) = waits.since.take() {
            waits.excess += since.elapsed();
        }
        let due = Duration::from_secs_f64(bytes as f64 / LEAST_RATE as f64);
        waits.excess = waits.excess.saturating_sub(due);
    }

    /// Returns when the client is too slow. `is_crowded` returns true while other requests wait for
    /// a session.
    pub(super) async fn exceeded(&self, is_crowded: impl Fn() -> bool) {
        while !self.lock().is_too_long(is_crowded()) {
            sleep(INTERVAL).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    async fn is_exceeded(waits: &ClientWaits, is_crowded: bool) -> bool {
        timeout(Duration::ZERO, waits.exceeded(|| is_crowded)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_too_slow_only_while_others_wait() {
        let waits = ClientWaits::default();
        // One byte a second: within the grace, and then beyond it.
        for second in 0..10 {
            waits.wait();
            advance(Duration::from_secs(1)).await;
            assert_eq!(is_exceeded(&waits, true).await, second >= 5, "{second}");
            assert!(!is_exceeded(&waits, false).await);
            waits.advance(1);
        }
        // An exchange that does not wait for its client is never ended.
        assert!(!is_exceeded(&waits, true).await);
        // One at the least rate lets no other wait, for as long as it goes on.
        let steady = ClientWaits::default();
        for _ in 0..60 {
            steady.wait();
            advance(Duration::from_secs(1)).await;
            assert!(!is_exceeded(&steady, true).await);
            steady.advance(LEAST_RATE as usize);
        }
        // Much at the beginning, which fills buffers, is no credit for a client that then reads
        // nothing.
        let stopped = ClientWaits::default();
        stopped.advance(100 << 20);
        stopped.wait();
        advance(Duration::from_secs(6)).await;
        assert!(is_exceeded(&stopped, true).await);
        assert!(!is_exceeded(&stopped, false).await);
        advance(Duration::from_secs(55)).await;
        assert!(is_exceeded(&stopped, false).await);
    }
}
