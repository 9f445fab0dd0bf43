//! The API of the catalogue: `/v1`, with immutable versions, packages by digest, lists, search and
//! changes.

mod blobs;
pub(super) mod cursor;
pub(super) mod lists;
pub(super) mod objects;
mod watch;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::problem::problem;
use super::query::{Query, decode};
use super::reply::{HandlerResult, Reply};
use super::request::Request;
use super::response::Response;
use super::site::Site;
use super::{json, openapi};

/// The reply to a request below `/v1`.
pub(super) fn answer(site: &Arc<Site>, request: &Request<'_>) -> HandlerResult {
    let rest = request.path.strip_prefix("/v1/").unwrap_or_default();
    let segments: Option<Vec<Cow<'_, str>>> = rest.split('/').map(decode).collect();
    let segments = segments.ok_or_else(|| problem(400, "the path is not percent-encoded UTF-8"))?;
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    match segments.as_slice() {
        ["objects"] => lists::objects(site, request),
        ["search"] => lists::search(site, request),
        ["watch"] => watch::watch(site, request),
        ["objects", kind, name] => objects::object(site, request, kind, name),
        ["objects", kind, name, version] => {
            objects::descriptor(site, request, (kind, name, version))
        }
        ["objects", kind, name, version, "meta"] => {
            objects::meta(site, request, (kind, name, version))
        }
        ["blobs", digest] => blobs::blob(site, request, digest),
        ["openapi.json"] => openapi_document(site, request),
        _ => Err(problem(404, "there is no such path: /v1/openapi.json lists them")),
    }
}

fn openapi_document(site: &Site, request: &Request<'_>) -> HandlerResult {
    Query::parse(request.query, &[])?;
    let body = site.openapi.get_or_init(|| Bytes::from(json::text(&openapi::document())));
    let response = Response::revalidated(request, "application/json", body.clone());
    Ok(Reply::Ready(response.any_origin()))
}
