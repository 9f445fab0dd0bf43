//! How long an exchange waits for its local client. A client that sends or takes a body slowly keeps a session,
//! of which there are few.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest wait for the next bytes.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// The waits of an exchange that count in no case.
const GRACE: Duration = Duration::from_secs(5);
/// While other requests wait for a session, an exchange may wait one second more for each of so many bytes.
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
    /// All waits that have ended.
    ended: Duration,
    /// Bytes of bodies that the client has sent or taken.
    bytes: u64,
}

impl Waits {
    fn is_too_long(&self, is_crowded: bool) -> bool {
        let now = self.since.map(|since| since.elapsed()).unwrap_or_default();
        let allowed = GRACE + Duration::from_secs(self.bytes / LEAST_RATE);
        now > IDLE_LIMIT || is_crowded && !now.is_zero() && self.ended + now > allowed
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
            waits.ended += since.elapsed();
        }
        waits.bytes += bytes as u64;
    }

    /// Returns when the client is too slow. `is_crowded` returns true while other requests wait for a session.
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
        // A client that has sent much may wait longer.
        let fast = ClientWaits::default();
        fast.advance(1 << 20);
        fast.wait();
        advance(Duration::from_secs(59)).await;
        assert!(!is_exceeded(&fast, true).await);
        advance(Duration::from_secs(2)).await;
        assert!(is_exceeded(&fast, false).await);
    }
}
