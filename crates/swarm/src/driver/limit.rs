//! Limits what a share sends.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The most bytes in a second, of all links of a party together.
pub(super) struct UploadLimit {
    rate: Option<u64>,
    /// When what was taken so far has left at that rate.
    next: Mutex<Instant>,
}

impl UploadLimit {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self { rate: rate.map(|rate| rate.max(1)), next: Mutex::new(Instant::now()) }
    }

    /// Waits until `bytes` may be sent. Those who wait are served in order.
    pub(super) async fn take(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let start = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let start = (*next).max(Instant::now());
            *next = start + Duration::from_secs_f64(bytes as f64 / rate as f64);
            start
        };
        sleep_until(start).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_leave_at_the_rate() {
        let limit = UploadLimit::new(Some(1000));
        let start = Instant::now();
        for _ in 0..5 {
            limit.take(500).await;
        }
        assert_eq!(start.elapsed().as_millis(), 2000);
        UploadLimit::new(None).take(u64::MAX).await;
    }
}
