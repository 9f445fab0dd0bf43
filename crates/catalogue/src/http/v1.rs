//! `/v1`: immutable versions, packages by digest, lists, search and changes.

mod blobs;
mod cursor;
pub(super) mod lists;
pub(super) mod objects;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::problem::problem;
use super::query::{Query, decode};
use super::request::Request;
use super::response::{Keep, Response};
use super::route::Reply;
use super::tag::Tag;
use super::{Site, json, openapi, watch};

/// An answer, or one that says why there is none: both are answers.
pub(super) type Answered = Result<Reply, Response>;

pub(super) fn answer(site: &Arc<Site>, request: &Request<'_>) -> Answered {
    let rest = request.path.strip_prefix("/v1/").unwrap_or_default();
    let segments: Option<Vec<Cow<'_, str>>> = rest.split('/').map(decode).collect();
    let segments = segments.ok_or_else(|| problem(400, "the path is not percent-encoded UTF-8"))?;
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    match segments.as_slice() {
        ["objects"] => lists::objects(site, request),
        ["search"] => lists::search(site, request),
        ["watch"] => watch::answer(site, request),
        ["objects", kind, name] => objects::object(site, request, kind, name),
        ["objects", kind, name, version] => {
            objects::descriptor(site, request, (kind, name, version))
        }
        ["objects", kind, name, version, "meta"] => {
            objects::meta(site, request, (kind, name, version))
        }
        ["blobs", digest] => blobs::answer(site, request, digest),
        ["openapi.json"] => describe(site, request),
        _ => Err(problem(404, "there is no such path: /v1/openapi.json has those that are")),
    }
}

fn describe(site: &Site, request: &Request<'_>) -> Answered {
    Query::parse(request.query, &[])?;
    let body = site.openapi.get_or_init(|| Bytes::from(json::text(&openapi::document())));
    let tag = Tag::of(body);
    let response = if tag.is_known(request) {
        Response::new(304)
    } else {
        Response::text(200, "application/json", body.clone())
    };
    Ok(Reply::Now(response.shared().keep(Keep::Revalidate).tag(&tag)))
}
