//! The responses of the page, with their security headers.

use super::html::{Html, document};
use crate::http::problem;
use crate::http::response::{CachePolicy, Response};
use crate::store::StoreError;

/// The Content-Security-Policy: only files of this server are loaded, no inline script runs, and
/// framing is forbidden.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A page with `content`.
pub(super) fn respond(status: u16, title: &str, content: &Html) -> Response {
    Response::text(status, "text/html; charset=utf-8", document(title, content))
        .field("Content-Security-Policy", POLICY)
        .field("Referrer-Policy", "no-referrer")
        .cache_policy(CachePolicy::NoStore)
}

/// A page with an error message.
pub(super) fn error_page(status: u16, text: &str) -> Response {
    let mut content = Html::default();
    content.raw("<h1>").text(text).raw("</h1><p><a href=\"/\">All objects</a></p>");
    respond(status, text, &content)
}

/// The page for an unknown path, object or cursor.
pub(super) fn not_found() -> Response {
    error_page(404, "There is no such page")
}

/// The page for an error of the store.
pub(super) fn of_store(error: &StoreError) -> Response {
    // `problem::of_store` also logs the cause of an internal error.
    match problem::of_store(error).status {
        404 => not_found(),
        400 => error_page(400, "This query is too long"),
        status => error_page(status, "The store failed"),
    }
}
