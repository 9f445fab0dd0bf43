//! From a request to its answer.

use std::fmt;
use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::problem::{busy, problem, refusal_response, text};
use super::request::{Method, Refusal, Request};
use super::response::{Keep, Response};
use super::{Site, compat, page, v1};

/// What is answered under `/.well-known/` (`compat`), and elsewhere.
pub(super) const fn allowed_methods(compat: bool) -> &'static str {
    if compat { "GET, HEAD, POST, OPTIONS" } else { "GET, HEAD, OPTIONS" }
}

/// An answer, or who makes it.
#[derive(Debug)]
pub enum Reply {
    /// Here it is.
    Now(Response),
    /// It needs the store: to be called where blocking does no harm.
    Later(Job),
}

/// What makes an answer and may block.
pub struct Job {
    make: Box<dyn FnOnce() -> Response + Send>,
    /// It was asked of the original's layer.
    compat: bool,
}

impl Job {
    /// For an answer of `/v1` or the page.
    pub(super) fn new(make: impl FnOnce() -> Response + Send + 'static) -> Self {
        Self { make: Box::new(make), compat: false }
    }

    /// For one of the original's layer.
    pub(super) fn compat(make: impl FnOnce() -> Response + Send + 'static) -> Self {
        Self { make: Box::new(make), compat: true }
    }

    /// Makes it.
    pub fn run(self) -> Response {
        (self.make)()
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
        let compat = is_compat(request.path);
        match request.method {
            Method::Get | Method::Head => {}
            Method::Post if compat => {}
            Method::Options => return Reply::Now(allowed(compat)),
            Method::Post | Method::Other => {
                let detail = "this method is not answered here: publish with `levada catalogue`";
                return Reply::Now(refusal_response(Refusal { status: 405, detail }, compat));
            }
        }
        if !self.config.catalogue {
            let extra = self.extra.as_ref().and_then(|extra| extra.answer(request.path));
            return Reply::Now(extra.unwrap_or_else(|| problem(404, "there is no such path")));
        }
        if compat {
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
        let compat = job.compat;
        let Ok(Ok(place)) = timeout_at(until, Arc::clone(&self.calls).acquire_owned()).await else {
            return busy(compat);
        };
        let made = tokio::task::spawn_blocking(move || {
            // Held until it is made, also if nobody waits for it any more.
            let _place = place;
            job.run()
        });
        match timeout_at(until, made).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => {
                let words = "the answer could not be made: the log of the catalogue says why";
                if compat { text(500, words) } else { problem(500, words) }
            }
            Err(_) => busy(compat),
        }
    }
}

/// Whether a path is one of the original's layer.
pub(super) fn is_compat(path: &str) -> bool {
    is_below(path, "/.well-known")
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Also what a browser asks before it lets a script of another origin ask (the Fetch Standard, "CORS protocol").
fn allowed(compat: bool) -> Response {
    Response::new(204)
        .field("Allow", allowed_methods(compat))
        .shared()
        .field("Access-Control-Allow-Methods", allowed_methods(compat))
        .field(
            "Access-Control-Allow-Headers",
            "Accept, Cache-Control, Content-Type, If-None-Match, If-Range, Last-Event-ID, Range",
        )
        .field("Access-Control-Max-Age", "86400")
        .keep(Keep::Never)
}
