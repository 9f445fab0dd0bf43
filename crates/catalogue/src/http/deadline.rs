//! Waiting with a deadline.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// A deadline that is moved often and reached seldom. The timer is reset only if it fires too early
/// or would fire too late, so that a busy connection does not touch it.
pub(super) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    at: Instant,
}

impl Deadline {
    pub fn new(at: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(at)), at }
    }

    pub fn set(&mut self, at: Instant) {
        self.at = at;
    }

    /// Polls `ready` until it returns a value; `None` if the deadline is reached first.
    pub async fn or<T>(&mut self, mut ready: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        poll_fn(|cx| match ready(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => self.poll(cx).map(|()| None),
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.at < self.sleep.deadline() {
            self.sleep.as_mut().reset(self.at);
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.at {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn reached(deadline: &mut Deadline) -> Instant {
        assert_eq!(deadline.or(|_| Poll::<()>::Pending).await, None);
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_can_be_moved_earlier_and_later() {
        let start = Instant::now();
        let seconds = |count| start + Duration::from_secs(count);
        let mut deadline = Deadline::new(seconds(10));
        deadline.set(seconds(20));
        assert!(reached(&mut deadline).await >= seconds(20));
        deadline.set(seconds(100));
        deadline.set(seconds(30));
        let at = reached(&mut deadline).await;
        assert!(at >= seconds(30) && at < seconds(100));
        assert_eq!(deadline.or(|_| Poll::Ready(7)).await, Some(7));
        let mut late = Deadline::new(seconds(1000));
        late.set(seconds(200));
        let at = reached(&mut late).await;
        assert!(at >= seconds(200) && at < seconds(1000));
    }
}
