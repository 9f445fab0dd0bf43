//! From a request to its answer.

use std::fmt;
use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::problem::{busy, problem};
use super::request::{Method, Request};
use super::response::{Keep, Response};
use super::{Site, compat, page, v1};

/// What is answered everywhere.
pub(super) const ALLOW: &str = "GET, HEAD, OPTIONS";

/// An answer, or who makes it.
#[derive(Debug)]
pub enum Reply {
    /// Here it is.
    Now(Response),
    /// It needs the store: to be called where blocking does no harm.
    Later(Job),
}

/// What makes an answer and may block.
pub struct Job(pub(super) Box<dyn FnOnce() -> Response + Send>);

impl Job {
    /// Makes it.
    pub fn run(self) -> Response {
        (self.0)()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

impl Site {
    /// The answer to `request`. What is answered to HEAD has a body, too, which is not to be sent.
    pub fn answer(self: &Arc<Self>, request: &Request<'_>) -> Reply {
        match request.method {
            Method::Get | Method::Head => {}
            Method::Options => return Reply::Now(allowed()),
            Method::Other => {
                let detail =
                    "only GET, HEAD and OPTIONS are answered here: publish with `levada catalogue`";
                return Reply::Now(problem(405, detail).field("Allow", ALLOW));
            }
        }
        if is_below(request.path, "/.well-known") {
            return compat::answer(self, request);
        }
        if is_below(request.path, "/v1") {
            return v1::answer(self, request).unwrap_or_else(Reply::Now);
        }
        let extra = self.extra.as_ref().and_then(|extra| extra.answer(request.path));
        match extra {
            Some(response) => Reply::Now(response),
            None => page::answer(self, request).unwrap_or_else(Reply::Now),
        }
    }

    /// Has somebody else make an answer, who may block.
    pub(super) async fn run(&self, job: Job) -> Response {
        let until = Instant::now() + self.config.times.store;
        let Ok(Ok(place)) = timeout_at(until, Arc::clone(&self.calls).acquire_owned()).await else {
            return busy();
        };
        let made = tokio::task::spawn_blocking(move || {
            // Held until it is made, also if nobody waits for it any more.
            let _place = place;
            job.run()
        });
        match timeout_at(until, made).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => {
                problem(500, "the answer could not be made: the log of the catalogue says why")
            }
            Err(_) => busy(),
        }
    }
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Also what a browser asks before it lets a script of another origin ask (the Fetch Standard, "CORS protocol").
fn allowed() -> Response {
    Response::new(204)
        .field("Allow", ALLOW)
        .shared()
        .field("Access-Control-Allow-Methods", ALLOW)
        .field(
            "Access-Control-Allow-Headers",
            "Accept, Cache-Control, If-None-Match, If-Range, Last-Event-ID, Range",
        )
        .field("Access-Control-Max-Age", "86400")
        .keep(Keep::Never)
}
