//! The reTHINK compatibility layer: `/.well-known/`. [`crate::rethink`] decides what is answered;
//! this module adds the header fields and reads packages. Errors are plain text, because reTHINK
//! clients take any JSON body for the requested object.

use std::sync::Arc;

use bytes::Bytes;
use levada_core::{Digest, sha256};
use tokio::time::Instant;

use super::body::Body;
use super::cache::{CacheKey, Cached};
use super::content::{Content, read_blob};
use super::problem::{busy, text, text_of_store};
use super::reply::{Job, Reply};
use super::request::{Method, Request};
use super::response::{CachePolicy, Response};
use super::site::Site;
use super::tag::Tag;
use super::verify::Verdict;
use crate::model::Kind;
use crate::rethink::{
    Answer, ConditionalPackage, Conditions, Host, MAX_CODE, MEDIA_TYPE, PackagePart,
    PackageRequest, PathType, Template, Value, pretty,
};

/// How many objects are read under one lock of the index for a list with conditions.
const BATCH: usize = 256;

/// The part of a request that the header fields of its response depend on.
#[derive(Clone, Debug)]
struct Context {
    /// Not a POST: the response has an entity tag and may be cached.
    cacheable: bool,
    /// The value of `If-None-Match` of a cacheable request.
    if_none_match: Option<Vec<u8>>,
}

pub(super) fn answer(site: &Arc<Site>, request: &Request<'_>) -> Reply {
    let conditions = match request.method {
        Method::Post => match Conditions::parse(request.body) {
            Ok(conditions) => conditions,
            Err(error) => return Reply::Ready(text(400, error.to_string())),
        },
        _ => None,
    };
    let cacheable = request.method != Method::Post;
    let if_none_match =
        request.headers.if_none_match.value().filter(|_| cacheable).map(<[u8]>::to_vec);
    let context = Context { cacheable, if_none_match };
    match (site.index.rethink(request.path.as_bytes(), conditions.as_ref()), conditions) {
        (Answer::Body(template), _) => Reply::Ready(context.template(&template, request.host)),
        (Answer::Missing(detail), _) => Reply::Ready(text(404, detail)),
        (Answer::Package(package), _) => match context.cached(site, &package) {
            Some(response) => Reply::Ready(response),
            None => context.job(site, move |context, site| context.build(site, &package)),
        },
        (Answer::ConditionalPackage(which), _) => {
            let host = request.host.map(|host| host.to_string());
            context.job(site, move |context, site| context.decide(site, *which, host.as_deref()))
        }
        (Answer::FilteredList(kind), conditions) => {
            let conditions = conditions.unwrap_or_default();
            context.job(site, move |context, site| context.list(site, kind, &conditions))
        }
    }
}

impl Context {
    fn job(
        self,
        site: &Arc<Site>,
        make: impl FnOnce(&Self, &Site) -> Response + Send + 'static,
    ) -> Reply {
        let site = Arc::clone(site);
        Reply::Job(Job::rethink(move || make(&self, &site)))
    }

    fn is_known(&self, tag: &Tag) -> bool {
        self.if_none_match.as_ref().is_some_and(|value| tag.is_in(value))
    }

    /// Adds the fields for caches and scripts. An entity tag identifies a body at one URL, which
    /// includes the host, so the tag of a template needs no host.
    fn fields(&self, response: Response, tag: &Tag) -> Response {
        let response = response.any_origin();
        if self.cacheable {
            response.cache_policy(CachePolicy::Revalidate).tag(tag)
        } else {
            response.cache_policy(CachePolicy::NoStore)
        }
    }

    fn template(&self, template: &Template, host: Option<Host<'_>>) -> Response {
        let tag = Tag::Template(template.tag());
        if self.is_known(&tag) {
            return self.fields(Response::new(304), &tag);
        }
        let (before, Some(after)) = template.parts() else {
            return self.fields(Response::text(200, MEDIA_TYPE, template.parts().0), &tag);
        };
        let Some(host) = host else {
            return text(400, "the request has no header Host, which this answer needs");
        };
        let body = Body::Parts(Box::new([before, format_host(template, host), after]));
        self.fields(Response::new(200).field("Content-Type", MEDIA_TYPE), &tag).body(body)
    }

    /// The response for a package, if its body is in the cache.
    fn cached(&self, site: &Site, package: &PackageRequest) -> Option<Response> {
        let key = CacheKey::Package(package.clone());
        match site.bodies.cache.find(&key, site.store.replaced())? {
            Cached::Content(content, half) => Some(self.content(&content, half, package)),
            Cached::Incompressible => None,
        }
    }

    fn content(&self, content: &Content, half: [u8; 16], package: &PackageRequest) -> Response {
        let tag = Tag::Template(half);
        // Pages load code with `<script src>`, although its media type is JSON, as in the reTHINK
        // catalogue.
        let new = match package.part {
            PackagePart::Code => Response::for_scripts,
            PackagePart::Whole | PackagePart::Md5 => Response::new,
        };
        if self.is_known(&tag) {
            return self.fields(new(304), &tag);
        }
        self.fields(new(200).field("Content-Type", MEDIA_TYPE), &tag).body(content.body())
    }

    /// Makes the body for a package from its code.
    fn build(&self, site: &Site, package: &PackageRequest) -> Response {
        let _build = site.bodies.lock_build(&package.digest);
        if let Some(response) = self.cached(site, package) {
            return response;
        }
        let generation = site.store.replaced();
        let code = match read_code(site, &package.digest) {
            Ok(code) => code,
            Err(response) => return response,
        };
        match package.complete(&code) {
            Answer::Body(template) => {
                let half = template.tag();
                let body = template.parts().0;
                let content =
                    Content::temporary(body, &site.bodies.budget, || site.store.scratch());
                let Some(content) = content else { return busy(true) };
                let response = self.content(&content, half, package);
                let key = CacheKey::Package(package.clone());
                site.bodies.cache.put(key, generation, Cached::Content(content, half));
                response
            }
            Answer::Missing(detail) => text(404, detail),
            _ => text(500, "the package cannot be answered"),
        }
    }

    /// Answers a request whose conditions depend on the code of a package.
    fn decide(&self, site: &Site, which: ConditionalPackage, host: Option<&str>) -> Response {
        let decided = {
            // Bounds the memory for code, as in `build`.
            let _build = site.bodies.lock_build(which.digest());
            match read_code(site, which.digest()) {
                Ok(code) => which.evaluate(&code),
                Err(response) => return response,
            }
        };
        match decided {
            Answer::Package(package) => {
                self.cached(site, &package).unwrap_or_else(|| self.build(site, &package))
            }
            Answer::Body(template) => {
                self.template(&template, host.and_then(|host| Host::new(host.as_bytes()).ok()))
            }
            Answer::Missing(detail) => text(404, detail),
            Answer::ConditionalPackage(_) | Answer::FilteredList(_) => {
                text(500, "the package cannot be answered")
            }
        }
    }

    /// The names of the objects that meet `conditions`. It reads every descriptor of the kind, so
    /// the number of concurrent lists is bounded, and each must end within the timeout of a store
    /// call.
    fn list(&self, site: &Site, kind: Kind, conditions: &Conditions) -> Response {
        let Ok(_permit) = site.limits.conditional_lists.try_acquire() else { return busy(true) };
        let until = Instant::now() + site.config.timeouts.store;
        let mut met = Vec::new();
        let mut after = None;
        loop {
            let batch = site.index.candidates(kind, after.as_deref(), BATCH);
            let Some(last) = batch.last() else { break };
            after = Some(Arc::clone(&last.name));
            if Instant::now() > until {
                return busy(true);
            }
            let found = batch.iter().filter(|candidate| candidate.matches(conditions));
            met.extend(found.map(|candidate| Value::Text(candidate.list_name())));
        }
        if met.is_empty() {
            return text(404, conditions.no_list_match(PathType::Objects(kind)));
        }
        let list = pretty(&Value::List(met), usize::MAX).unwrap_or_default();
        let tag = Tag::of(list.as_bytes());
        self.fields(Response::text(200, MEDIA_TYPE, list), &tag)
    }
}

/// Reads the code of a package and verifies its digest, which reTHINK clients do not.
fn read_code(site: &Site, digest: &Digest) -> Result<Bytes, Response> {
    let generation = site.store.replaced();
    let damaged = || text(500, "the package is damaged: publish it again to repair it");
    if site.bodies.verifier.known(digest, generation) == Verdict::Damaged {
        return Err(damaged());
    }
    let code = match site.store.open_blob(digest) {
        Ok(Some(blob)) => {
            read_blob(blob, MAX_CODE).map_err(|_| text(500, "the package cannot be read"))?
        }
        Ok(None) => return Err(text(500, "the package is not in the store")),
        Err(error) => return Err(text_of_store(&error)),
    };
    match site.bodies.verifier.record(digest, sha256(&[&code]) == *digest, generation) {
        Verdict::Damaged => Err(damaged()),
        Verdict::Sound | Verdict::Unknown => Ok(code),
    }
}

fn format_host(template: &Template, host: Host<'_>) -> Bytes {
    match template.escaped_host(host) {
        Some(spelled) => spelled.into(),
        None => Bytes::copy_from_slice(host.as_str().as_bytes()),
    }
}
