//! `/.well-known/`: the rules are the original's (`crate::original`), here they get their fields.

use std::sync::Arc;

use bytes::Bytes;

use super::Site;
use super::cache::{CacheKey, Cached};
use super::content::{Content, read_blob};
use super::problem::{busy, document, of_store, problem};
use super::request::Request;
use super::response::{Body, Keep, Response};
use super::route::{Job, Reply};
use super::tag::Tag;
use crate::original::{Answer, Host, MAX_CODE, MEDIA_TYPE, PackageRequest, Template};

pub(super) fn answer(site: &Arc<Site>, request: &Request<'_>) -> Reply {
    match site.index.original(request.path.as_bytes()) {
        Answer::Body(template) => Reply::Now(template_response(&template, request)),
        Answer::Problem(problem) => Reply::Now(document(&problem)),
        Answer::Package(package) => answer_package(site, package, request),
    }
}

fn template_response(template: &Template, request: &Request<'_>) -> Response {
    let tag = Tag::Template(template.tag());
    if tag.is_known(request) {
        return fields(Response::new(304), &tag);
    }
    let (before, Some(after)) = template.parts() else {
        return fields(Response::text(200, MEDIA_TYPE, template.parts().0), &tag);
    };
    let Some(host) = request.host else {
        return problem(400, "the request has no header Host, which this answer needs");
    };
    let body = Body::Parts(Box::new([before, spell(template, host), after]));
    fields(Response::new(200).field("Content-Type", MEDIA_TYPE), &tag).body(body)
}

fn spell(template: &Template, host: Host<'_>) -> Bytes {
    match template.spelled(host) {
        Some(spelled) => spelled.into(),
        None => Bytes::copy_from_slice(host.as_str().as_bytes()),
    }
}

/// A tag stands for one body at one URL, and the host is part of that.
fn fields(response: Response, tag: &Tag) -> Response {
    response.shared().keep(Keep::Revalidate).tag(tag)
}

fn answer_package(site: &Arc<Site>, package: PackageRequest, request: &Request<'_>) -> Reply {
    let key = CacheKey::Package(package.clone());
    let known = request.if_none_match.value();
    if let Some(response) = find(site, &key, known) {
        return Reply::Now(response);
    }
    let (site, known) = (Arc::clone(site), known.map(<[u8]>::to_vec));
    Reply::Later(Job(Box::new(move || make(&site, &package, key, known.as_deref()))))
}

/// The answer, if its body is kept. `known` is what the client has.
fn find(site: &Site, key: &CacheKey, known: Option<&[u8]>) -> Option<Response> {
    match site.cache.find(key, site.store.replaced())? {
        Cached::Content(content, half) => Some(content_response(&content, half, known)),
        Cached::Incompressible => None,
    }
}

fn content_response(content: &Content, half: [u8; 16], known: Option<&[u8]>) -> Response {
    let tag = Tag::Template(half);
    if known.is_some_and(|known| tag.is_in(known)) {
        return fields(Response::new(304), &tag);
    }
    fields(Response::new(200).field("Content-Type", MEDIA_TYPE), &tag).body(content.body())
}

/// Makes the body of a package from its code.
fn make(site: &Site, package: &PackageRequest, key: CacheKey, known: Option<&[u8]>) -> Response {
    let _workshop = site.workshop(&package.digest);
    if let Some(response) = find(site, &key, known) {
        return response;
    }
    let stamp = site.store.replaced();
    let code = match site.store.open_blob(&package.digest) {
        Ok(Some(blob)) => read_blob(blob, MAX_CODE),
        Ok(None) => return problem(500, "the package is not in the store"),
        Err(error) => return of_store(&error),
    };
    let Ok(code) = code else { return problem(500, "the package cannot be read") };
    match package.complete(&code) {
        Answer::Body(template) => {
            let half = template.tag();
            let made = Content::made(template.parts().0, &site.room, || site.store.scratch());
            let Some(content) = made else { return busy() };
            let response = content_response(&content, half, known);
            site.cache.put(key, stamp, Cached::Content(content, half));
            response
        }
        Answer::Problem(problem) => document(&problem),
        Answer::Package(_) => problem(500, "the package cannot be answered"),
    }
}
