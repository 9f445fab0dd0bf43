//! What a handler returns: a response, or a job that makes one.

use std::fmt;
use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::problem::{busy, problem, text};
use super::response::Response;
use super::site::Site;

/// What a handler returns.
#[derive(Debug)]
pub(super) enum Reply {
    /// The response.
    Ready(Response),
    /// Makes the response from the store, which may block.
    Job(Job),
}

/// The reply to a request, or an error response.
pub(super) type HandlerResult = Result<Reply, Response>;

/// A closure that makes a response and may block.
pub(super) struct Job {
    make: Box<dyn FnOnce() -> Response + Send>,
    /// Errors are plain text, as the reTHINK compatibility layer sends them.
    rethink: bool,
}

impl Job {
    /// For a response of `/v1` or the page.
    pub(super) fn new(make: impl FnOnce() -> Response + Send + 'static) -> Self {
        Self { make: Box::new(make), rethink: false }
    }

    /// For a response of the reTHINK compatibility layer.
    pub(super) fn rethink(make: impl FnOnce() -> Response + Send + 'static) -> Self {
        Self { make: Box::new(make), rethink: true }
    }

    /// Makes the response on this thread.
    pub fn run(self) -> Response {
        (self.make)()
    }

    /// Makes the response on a blocking thread, within [`Timeouts::store`](super::Timeouts::store).
    pub(super) async fn run_blocking(self, site: &Site) -> Response {
        let until = Instant::now() + site.config.timeouts.store;
        let rethink = self.rethink;
        let Ok(Ok(permit)) =
            timeout_at(until, Arc::clone(&site.limits.store_calls).acquire_owned()).await
        else {
            return busy(rethink);
        };
        let made = tokio::task::spawn_blocking(move || {
            // Held until the job ends, also after the timeout.
            let _permit = permit;
            self.run()
        });
        match timeout_at(until, made).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => {
                let detail = "the answer could not be made: the log of the catalogue says why";
                if rethink { text(500, detail) } else { problem(500, detail) }
            }
            Err(_) => busy(rethink),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}
