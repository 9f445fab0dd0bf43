//! `/.well-known/`: the rules are the original's (`crate::original`), here they get their fields. What goes wrong is said in
//! a text: clients of the original take any JSON for an answer.

use std::sync::Arc;

use bytes::Bytes;
use levada_core::{Digest, sha256};
use tokio::time::Instant;

use super::Site;
use super::cache::{CacheKey, Cached};
use super::content::{Content, read_blob};
use super::problem::{busy, text, text_of_store};
use super::request::{Method, Request};
use super::response::{Body, Keep, Response};
use super::route::{Job, Reply};
use super::tag::Tag;
use super::verify::Verdict;
use crate::model::Kind;
use crate::rethink::{
    Answer, Conditions, Host, MAX_CODE, MEDIA_TYPE, PackageIf, PackageRequest, PathType, Template,
    Value, Wanted, pretty,
};

/// How many objects are compared with conditions before others may change the index.
const AT_ONCE: usize = 256;

/// What of a request the fields of its answer depend on.
#[derive(Clone, Debug)]
struct Wish {
    /// A GET: its answer has a tag, and may be kept and asked for again.
    keep: bool,
    /// What the client has, if it is a GET.
    known: Option<Vec<u8>>,
}

pub(super) fn answer(site: &Arc<Site>, request: &Request<'_>) -> Reply {
    let conditions = match request.method {
        Method::Post => match Conditions::read(request.body) {
            Ok(conditions) => conditions,
            Err(error) => return Reply::Now(text(400, error.to_string())),
        },
        _ => None,
    };
    let keep = request.method != Method::Post;
    let known = request.if_none_match.value().filter(|_| keep).map(<[u8]>::to_vec);
    let wish = Wish { keep, known };
    match (site.index.rethink(request.path.as_bytes(), conditions.as_ref()), conditions) {
        (Answer::Body(template), _) => Reply::Now(wish.template(&template, request.host)),
        (Answer::Missing(words), _) => Reply::Now(text(404, words)),
        (Answer::Package(package), _) => match wish.find(site, &package) {
            Some(response) => Reply::Now(response),
            None => wish.later(site, move |wish, site| wish.make(site, &package)),
        },
        (Answer::PackageIf(which), _) => {
            let host = request.host.map(|host| host.to_string());
            wish.later(site, move |wish, site| wish.decide(site, *which, host.as_deref()))
        }
        (Answer::ListIf(kind), conditions) => {
            let conditions = conditions.unwrap_or_default();
            wish.later(site, move |wish, site| wish.list(site, kind, &conditions))
        }
    }
}

impl Wish {
    fn later(
        self,
        site: &Arc<Site>,
        make: impl FnOnce(&Self, &Site) -> Response + Send + 'static,
    ) -> Reply {
        let site = Arc::clone(site);
        Reply::Later(Job::compat(move || make(&self, &site)))
    }

    fn is_known(&self, tag: &Tag) -> bool {
        self.known.as_ref().is_some_and(|known| tag.is_in(known))
    }

    /// A tag stands for one body at one URL, and the host is part of that.
    fn fields(&self, response: Response, tag: &Tag) -> Response {
        let response = response.shared();
        if self.keep {
            response.keep(Keep::Revalidate).tag(tag)
        } else {
            response.keep(Keep::Never)
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
        let body = Body::Parts(Box::new([before, spell(template, host), after]));
        self.fields(Response::new(200).field("Content-Type", MEDIA_TYPE), &tag).body(body)
    }

    /// The answer of a package, if its body is kept.
    fn find(&self, site: &Site, package: &PackageRequest) -> Option<Response> {
        let key = CacheKey::Package(package.clone());
        match site.cache.find(&key, site.store.replaced())? {
            Cached::Content(content, half) => Some(self.content(&content, half, package)),
            Cached::Incompressible => None,
        }
    }

    fn content(&self, content: &Content, half: [u8; 16], package: &PackageRequest) -> Response {
        let tag = Tag::Template(half);
        // Pages load code by `<script src>`, and its type is JSON, as it was in the original.
        let new = match package.wanted {
            Wanted::Code => Response::for_scripts,
            Wanted::Whole | Wanted::Md5 => Response::new,
        };
        if self.is_known(&tag) {
            return self.fields(new(304), &tag);
        }
        self.fields(new(200).field("Content-Type", MEDIA_TYPE), &tag).body(content.body())
    }

    /// Makes the body of a package from its code.
    fn make(&self, site: &Site, package: &PackageRequest) -> Response {
        let _workshop = site.workshop(&package.digest);
        if let Some(response) = self.find(site, package) {
            return response;
        }
        let stamp = site.store.replaced();
        let code = match read_code(site, &package.digest) {
            Ok(code) => code,
            Err(response) => return response,
        };
        match package.complete(&code) {
            Answer::Body(template) => {
                let half = template.tag();
                let made = Content::made(template.parts().0, &site.room, || site.store.scratch());
                let Some(content) = made else { return busy(true) };
                let response = self.content(&content, half, package);
                let key = CacheKey::Package(package.clone());
                site.cache.put(key, stamp, Cached::Content(content, half));
                response
            }
            Answer::Missing(words) => text(404, words),
            _ => text(500, "the package cannot be answered"),
        }
    }

    /// Answers what depends on the code of a package.
    fn decide(&self, site: &Site, which: PackageIf, host: Option<&str>) -> Response {
        let decided = {
            // As for a body: the code may be long.
            let _workshop = site.workshop(which.digest());
            match read_code(site, which.digest()) {
                Ok(code) => which.decide(&code),
                Err(response) => return response,
            }
        };
        match decided {
            Answer::Package(package) => {
                self.find(site, &package).unwrap_or_else(|| self.make(site, &package))
            }
            Answer::Body(template) => {
                self.template(&template, host.and_then(|host| Host::new(host.as_bytes()).ok()))
            }
            Answer::Missing(words) => text(404, words),
            Answer::PackageIf(_) | Answer::ListIf(_) => text(500, "the package cannot be answered"),
        }
    }

    /// The names of the objects that meet `conditions`. Of a large catalogue every descriptor is read: a few such lists
    /// are made at once, and each has the time of a call of the store.
    fn list(&self, site: &Site, kind: Kind, conditions: &Conditions) -> Response {
        let Ok(_place) = site.lists.try_acquire() else { return busy(true) };
        let until = Instant::now() + site.config.times.store;
        let (mut met, mut after) = (Vec::new(), None);
        loop {
            let some = site.index.candidates(kind, after.as_deref(), AT_ONCE);
            let Some(last) = some.last() else { break };
            after = Some(Arc::clone(&last.name));
            if Instant::now() > until {
                return busy(true);
            }
            let found = some.iter().filter(|candidate| candidate.meets(conditions));
            met.extend(found.map(|candidate| Value::Text(candidate.listed())));
        }
        if met.is_empty() {
            return text(404, conditions.unmet_by_all(PathType::Objects(kind)));
        }
        let list = pretty(&Value::List(met), usize::MAX).unwrap_or_default();
        let tag = Tag::of(list.as_bytes());
        self.fields(Response::text(200, MEDIA_TYPE, list), &tag)
    }
}

/// The code of a package. It is read whole, so it is also compared with its digest: no client of the original does.
fn read_code(site: &Site, digest: &Digest) -> Result<Bytes, Response> {
    let stamp = site.store.replaced();
    let damaged = || text(500, "the package is damaged here: publish it once more to heal it");
    if site.verifier.known(digest, stamp) == Verdict::Damaged {
        return Err(damaged());
    }
    let code = match site.store.open_blob(digest) {
        Ok(Some(blob)) => {
            read_blob(blob, MAX_CODE).map_err(|_| text(500, "the package cannot be read"))?
        }
        Ok(None) => return Err(text(500, "the package is not in the store")),
        Err(error) => return Err(text_of_store(&error)),
    };
    match site.verifier.note(digest, sha256(&[&code]) == *digest, stamp) {
        Verdict::Damaged => Err(damaged()),
        Verdict::Sound | Verdict::Unknown => Ok(code),
    }
}

fn spell(template: &Template, host: Host<'_>) -> Bytes {
    match template.spelled(host) {
        Some(spelled) => spelled.into(),
        None => Bytes::copy_from_slice(host.as_str().as_bytes()),
    }
}
