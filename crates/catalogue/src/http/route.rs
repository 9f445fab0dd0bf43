//! From a request to the handler that answers it.

use std::sync::Arc;

use super::path::{allowed_methods, is_below, is_rethink};
use super::problem::{problem, refusal_response};
use super::reply::Reply;
use super::request::{Method, Refusal, Request};
use super::response::{CachePolicy, Response};
use super::site::Site;
use super::{page, v1};

/// The reply to `request`. A reply to HEAD has the body of the reply to GET, which the connection
/// does not send.
pub(super) fn route(site: &Arc<Site>, request: &Request<'_>) -> Reply {
    let is_rethink = is_rethink(request.path);
    match request.method {
        Method::Get | Method::Head => {}
        Method::Post if is_rethink => {}
        Method::Options => return Reply::Ready(options(is_rethink)),
        Method::Post | Method::Other => {
            let detail = "this method is not answered here: publish with `levada catalogue`";
            return Reply::Ready(refusal_response(Refusal { status: 405, detail }, is_rethink));
        }
    }
    if !site.config.catalogue {
        let extra = site.extra_response(request.path);
        return Reply::Ready(extra.unwrap_or_else(|| problem(404, "there is no such path")));
    }
    #[cfg(feature = "rethink")]
    if is_rethink {
        return super::rethink::answer(site, request);
    }
    if is_below(request.path, "/v1") {
        return v1::answer(site, request).unwrap_or_else(Reply::Ready);
    }
    match site.extra_response(request.path) {
        Some(response) => Reply::Ready(response),
        None => page::answer(site, request).unwrap_or_else(Reply::Ready),
    }
}

/// The response to OPTIONS, which is also the response to a CORS preflight request (the Fetch
/// Standard, "CORS protocol").
fn options(rethink: bool) -> Response {
    Response::new(204)
        .field("Allow", allowed_methods(rethink))
        .any_origin()
        .field("Access-Control-Allow-Methods", allowed_methods(rethink))
        .field(
            "Access-Control-Allow-Headers",
            "Accept, Cache-Control, Content-Type, If-None-Match, If-Range, Last-Event-ID, Range",
        )
        .field("Access-Control-Max-Age", "86400")
        .cache_policy(CachePolicy::NoStore)
}
