//! Answers that say why there is none: documents (RFC 9457), and texts where clients of the original take any JSON for
//! what they asked for, whatever the status is.

use serde_json::json;

use super::request::Refusal;
use super::response::{Keep, Response};
use super::route;
use crate::store::StoreError;

/// The media type of a problem document (RFC 9457 section 3).
const MEDIA_TYPE: &str = "application/problem+json";
const PLAIN: &str = "text/plain; charset=utf-8";

/// A problem document. `detail` is a sentence for whoever asked.
pub(super) fn problem(status: u16, detail: impl Into<String>) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": title(status),
        "status": status,
        "detail": detail.into(),
    });
    Response::text(status, MEDIA_TYPE, body.to_string()).shared().keep(Keep::Never)
}

/// A text, for clients of the original.
pub(super) fn text(status: u16, words: impl Into<String>) -> Response {
    Response::text(status, PLAIN, words.into()).shared().keep(Keep::Never)
}

/// The answer to what is refused; `compat` if it was asked of the original's layer.
pub(super) fn refusal_response(refusal: Refusal, compat: bool) -> Response {
    let Refusal { status, detail } = refusal;
    let response = if compat { text(status, detail) } else { problem(status, detail) };
    match status {
        405 => response.field("Allow", route::allowed_methods(compat)),
        503 => response.field("Retry-After", "1"),
        _ => response,
    }
}

/// What the store could not do. What is wrong with it is for the log, not for the client.
pub(super) fn of_store(error: &StoreError) -> Response {
    let (status, detail) = words_of(error);
    problem(status, detail)
}

/// As [`of_store`], for clients of the original.
pub(super) fn text_of_store(error: &StoreError) -> Response {
    let (status, detail) = words_of(error);
    text(status, detail)
}

fn words_of(error: &StoreError) -> (u16, String) {
    match error {
        StoreError::Query => (400, error.to_string()),
        StoreError::Cursor => (404, error.to_string()),
        StoreError::Compacted { after, newest, .. } if after > newest => {
            (404, format!("there is no revision {after}: the last one is {newest}"))
        }
        StoreError::Compacted { .. } => (410, error.to_string()),
        other => {
            tracing::error!(error = %other, "the catalogue's store failed");
            (500, "the store failed: the log of the catalogue says why".to_owned())
        }
    }
}

/// For what would take too long now; `compat` if it was asked of the original's layer.
pub(super) fn busy(compat: bool) -> Response {
    let detail = "the catalogue is busy: try again in a moment";
    refusal_response(Refusal { status: 503, detail }, compat)
}

const fn title(status: u16) -> &'static str {
    match status {
        400 => "The request is wrong",
        404 => "There is no such thing",
        405 => "This method is not answered",
        408 => "The request took too long",
        410 => "It is not kept any more",
        413 => "The body of the request is not accepted",
        414 | 431 => "The request is too long",
        416 => "There is no such part",
        503 => "Too much to do",
        505 => "This version of HTTP is not spoken",
        _ => "Something failed",
    }
}
