//! `/.well-known/`: the rules are the original's (`crate::original`), here they get their fields.

use std::sync::Arc;

use bytes::Bytes;

use super::Site;
use super::cache::{CacheKey, Cached};
use super::content::{Content, read_blob};
use super::problem::{document, of_store, problem};
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
    let key = CacheKey::Package(package);
    if let Some(Cached::Content(content, half)) = site.cache.find(&key) {
        let tag = Tag::Template(half);
        return Reply::Now(match tag.is_known(request) {
            true => fields(Response::new(304), &tag),
            false => content_response(&content, &tag),
        });
    }
    let CacheKey::Package(package) = key else { return Reply::Now(problem(500, "")) };
    let site = Arc::clone(site);
    // Whether it is known is seen when it is asked for again: by then it is in the cache.
    Reply::Later(Job(Box::new(move || make(&site, package))))
}

fn content_response(content: &Content, tag: &Tag) -> Response {
    fields(Response::new(200).field("Content-Type", MEDIA_TYPE), tag).body(content.body())
}

/// Makes the body of a package from its code.
fn make(site: &Site, package: PackageRequest) -> Response {
    let code = match site.store.open_blob(&package.digest) {
        Ok(Some(blob)) => read_blob(blob, MAX_CODE),
        Ok(None) => return problem(500, "the package is not in the store"),
        Err(error) => return of_store(&error),
    };
    let Ok(code) = code else { return problem(500, "the package cannot be read") };
    match package.complete(&code) {
        Answer::Body(template) => {
            let content = Content::made(template.parts().0);
            let half = template.tag();
            let response = content_response(&content, &Tag::Template(half));
            site.cache.put(CacheKey::Package(package), Cached::Content(content, half));
            response
        }
        Answer::Problem(problem) => document(&problem),
        Answer::Package(_) => problem(500, "the package cannot be answered"),
    }
}
