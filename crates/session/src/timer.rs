//! Time for drivers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// The time of the timers of the runtime, which tests can stop.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A timer that is armed for one moment at a time.
pub struct Timer {
    sleep: Pin<Box<Sleep>>,
    armed: Option<Instant>,
}

impl Default for Timer {
    fn default() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), armed: None }
    }
}

impl Timer {
    /// Ready when `deadline` has passed; pending without one.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        loop {
            // A timer that expires early costs less than one that is reset after each record.
            if self.armed.is_none_or(|armed| deadline < armed) {
                self.armed = Some(deadline);
                self.sleep.as_mut().reset(deadline.into());
            }
            ready!(self.sleep.as_mut().poll(cx));
            if self.armed.take() == Some(deadline) || deadline <= now() {
                return Poll::Ready(());
            }
        }
    }
}
