//! What a session may hold until its peer has proved a right.

use std::time::{Duration, Instant};

use crate::budget::{Account, Accounted};
use crate::timer::now;

/// The interval at which a session that waits for memory tries again.
const RETRY: Duration = Duration::from_millis(100);

/// The account of a session in a [`crate::Budget`], and how long it has waited for memory.
pub struct Memory {
    account: Account,
    blocked_since: Option<Instant>,
    waited: Duration,
}

impl Memory {
    /// A session that holds nothing yet.
    pub fn new(account: Account) -> Self {
        Self { account, blocked_since: None, waited: Duration::ZERO }
    }

    /// Reports what a session still holds that has ended.
    pub fn report(&mut self, bytes: usize) {
        self.blocked_since = None;
        self.account.update(bytes);
    }

    /// Reports what the session holds; returns whether it may read more. If not, the driver reads
    /// later, or the budget closes the session. The caller must not hold the lock of any session.
    pub fn may_read(&mut self, bytes: usize, session: &dyn Accounted) -> bool {
        let now = now();
        if let Some(since) = self.blocked_since.take() {
            self.waited += now.duration_since(since);
        }
        if self.account.update(bytes) {
            return true;
        }
        self.blocked_since = Some(now);
        self.account.close_if_waited(self.waited, session);
        false
    }

    /// When a session that waits tries again.
    pub fn retry_at(&self) -> Option<Instant> {
        self.blocked_since.map(|since| since + RETRY)
    }
}
