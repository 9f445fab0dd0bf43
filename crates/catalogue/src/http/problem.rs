//! Answers that say why there is none (RFC 9457).

use super::request::Refusal;
use super::response::{Keep, Response};
use crate::original::{PROBLEM_MEDIA_TYPE, Problem};
use crate::store::StoreError;

/// A problem document. `detail` is a sentence for whoever asked.
pub(super) fn problem(status: u16, detail: impl Into<String>) -> Response {
    let problem = Problem { status, title: title(status), detail: detail.into() };
    document(&problem)
}

/// The answer that `problem` is.
pub(super) fn document(problem: &Problem) -> Response {
    Response::text(problem.status, PROBLEM_MEDIA_TYPE, problem.body()).shared().keep(Keep::Never)
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        let response = problem(refusal.status, refusal.detail);
        if refusal.status == 405 { response.field("Allow", super::route::ALLOW) } else { response }
    }
}

/// What the store could not do. What is wrong with it is for the log, not for the client.
pub(super) fn of_store(error: &StoreError) -> Response {
    match error {
        StoreError::Query => problem(400, error.to_string()),
        StoreError::Cursor => problem(404, error.to_string()),
        StoreError::Compacted { after, newest, .. } if after > newest => {
            problem(404, format!("there is no revision {after}: the last one is {newest}"))
        }
        StoreError::Compacted { .. } => problem(410, error.to_string()),
        other => {
            tracing::error!(error = %other, "the catalogue's store failed");
            problem(500, "the store failed: the log of the catalogue says why")
        }
    }
}

/// For what would take too long now.
pub(super) fn busy() -> Response {
    problem(503, "the catalogue is busy: try again in a moment").field("Retry-After", "1")
}

const fn title(status: u16) -> &'static str {
    match status {
        400 => "The request is wrong",
        404 => "There is no such thing",
        405 => "This method is not answered",
        408 => "The request took too long",
        410 => "It is not kept any more",
        413 => "A request has no body",
        414 | 431 => "The request is too long",
        416 => "There is no such part",
        503 => "Too much to do",
        505 => "This version of HTTP is not spoken",
        _ => "Something failed",
    }
}
