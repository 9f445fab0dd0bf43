//! Error responses: problem documents (RFC 9457), and plain text for the reTHINK compatibility
//! layer, whose clients take any JSON body for the requested object, whatever the status is.

use serde_json::json;

use super::path::allowed_methods;
use super::request::Refusal;
use super::response::{CachePolicy, Response};
use crate::store::StoreError;

/// The media type of a problem document (RFC 9457 section 3).
const MEDIA_TYPE: &str = "application/problem+json";
const PLAIN: &str = "text/plain; charset=utf-8";

/// A problem document. `detail` is a sentence for the client.
pub(super) fn problem(status: u16, detail: impl Into<String>) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": title(status),
        "status": status,
        "detail": detail.into(),
    });
    Response::text(status, MEDIA_TYPE, body.to_string())
        .any_origin()
        .cache_policy(CachePolicy::NoStore)
}

/// A plain text, for clients of the reTHINK compatibility layer.
pub(super) fn text(status: u16, detail: impl Into<String>) -> Response {
    Response::text(status, PLAIN, detail.into()).any_origin().cache_policy(CachePolicy::NoStore)
}

/// The response to a refused request; `rethink` if it is for the reTHINK compatibility layer.
pub(super) fn refusal_response(refusal: Refusal, rethink: bool) -> Response {
    let Refusal { status, detail } = refusal;
    let response = if rethink { text(status, detail) } else { problem(status, detail) };
    match status {
        405 => response.field("Allow", allowed_methods(rethink)),
        503 => response.field("Retry-After", "1"),
        _ => response,
    }
}

/// The response to an error of the store. The cause of an internal error goes to the log, not to
/// the client.
pub(super) fn of_store(error: &StoreError) -> Response {
    let (status, detail) = status_of(error);
    problem(status, detail)
}

/// As [`of_store`], in plain text for the reTHINK compatibility layer.
pub(super) fn text_of_store(error: &StoreError) -> Response {
    let (status, detail) = status_of(error);
    text(status, detail)
}

fn status_of(error: &StoreError) -> (u16, String) {
    match error {
        StoreError::Query => (400, error.to_string()),
        StoreError::Cursor => (404, error.to_string()),
        StoreError::Compacted { after, newest, .. } if after > newest => {
            (404, format!("there is no revision {after}: the last one is {newest}"))
        }
        StoreError::Compacted { .. } => (410, error.to_string()),
        StoreError::Behind { .. } | StoreError::Unavailable(_) | StoreError::Uncertain => {
            (503, error.to_string())
        }
        other => {
            tracing::error!(error = %other, "the catalogue's store failed");
            (500, "the store failed: the log of the catalogue says why".to_owned())
        }
    }
}

/// The response when a limit on concurrent work is reached; `rethink` if the request is for the
/// reTHINK compatibility layer.
pub(super) fn busy(rethink: bool) -> Response {
    let detail = "the catalogue is busy: try again in a moment";
    refusal_response(Refusal { status: 503, detail }, rethink)
}

const fn title(status: u16) -> &'static str {
    match status {
        400 => "The request is wrong",
        404 => "Not found",
        405 => "Method not allowed",
        408 => "The request took too long",
        410 => "No longer available",
        413 => "The body of the request is not accepted",
        414 | 431 => "The request is too long",
        416 => "Range not satisfiable",
        503 => "Busy",
        505 => "HTTP version not supported",
        _ => "Internal error",
    }
}
