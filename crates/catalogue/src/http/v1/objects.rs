//! Objects and their versions.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::cache::{CacheKey, Cached};
use crate::http::content::Content;
use crate::http::json::{self, ObjectJson};
use crate::http::problem::{of_store, problem};
use crate::http::query::{Query, encode};
use crate::http::reply::{HandlerResult, Job, Reply};
use crate::http::request::Request;
use crate::http::response::{CachePolicy, Response};
use crate::http::site::Site;
use crate::http::tag::Tag;
use crate::index::{Object, VersionEntry};
use crate::model::{Key, Kind, Published, Version, VersionReq};

/// Names the newest version that is not yanked.
pub(in crate::http) const LATEST: &str = "latest";

/// `/v1/objects/{kind}/{name}`.
pub(super) fn object(
    site: &Arc<Site>,
    request: &Request<'_>,
    kind: &str,
    name: &str,
) -> HandlerResult {
    Query::parse(request.query, &[])?;
    let object = find(site, kind, name)?;
    let body = json::text(&ObjectJson::new(&object));
    Ok(Reply::Ready(Response::revalidated(request, "application/json", body).any_origin()))
}

/// `/v1/objects/{kind}/{name}/{version}`: the descriptor as it was published.
pub(super) fn descriptor(
    site: &Arc<Site>,
    request: &Request<'_>,
    (kind, name, version): (&str, &str, &str),
) -> HandlerResult {
    Query::parse(request.query, &[])?;
    let object = find(site, kind, name)?;
    let (entry, exact) = choose(&object, version)?;
    let fields = Fields::new(&object.key, entry, exact, "");
    let tag = Tag::Body(entry.digest);
    if tag.is_known(request) {
        return Ok(Reply::Ready(fields.add(Response::new(304), &tag)));
    }
    if let Some(descriptor) = object.descriptor(entry) {
        return Ok(Reply::Ready(fields.add(json_body(descriptor.clone()), &tag)));
    }
    let key = CacheKey::Descriptor(entry.digest);
    if let Some(Cached::Content(Content::Bytes(descriptor), _)) = site.bodies.cache.find(&key, 0) {
        return Ok(Reply::Ready(fields.add(json_body(descriptor), &tag)));
    }
    Ok(from_store(site, &object.key, entry, move |site, published| {
        let descriptor = Bytes::from(published.descriptor);
        let content = Content::Bytes(descriptor.clone());
        site.bodies.cache.put(key, 0, Cached::Content(content, [0; 16]));
        fields.add(json_body(descriptor), &tag)
    }))
}

/// `/v1/objects/{kind}/{name}/{version}/meta`.
pub(super) fn meta(
    site: &Arc<Site>,
    request: &Request<'_>,
    (kind, name, version): (&str, &str, &str),
) -> HandlerResult {
    Query::parse(request.query, &[])?;
    let object = find(site, kind, name)?;
    let (entry, exact) = choose(&object, version)?;
    // The metadata changes when the version is yanked.
    let fields = Fields {
        policy: CachePolicy::Revalidate,
        ..Fields::new(&object.key, entry, exact, "/meta")
    };
    let if_none_match = request.headers.if_none_match.value().map(<[u8]>::to_vec);
    Ok(from_store(site, &object.key, entry, move |_, published| {
        let body = json::meta(&published);
        let tag = Tag::of(body.as_bytes());
        let response = if if_none_match.is_some_and(|value| tag.is_in(&value)) {
            Response::new(304)
        } else {
            json_body(body)
        };
        fields.add(response, &tag)
    }))
}

fn json_body(body: impl Into<Bytes>) -> Response {
    Response::text(200, "application/json", body)
}

/// The object, if it exists and is shown.
pub(in crate::http) fn find(site: &Site, kind: &str, name: &str) -> Result<Arc<Object>, Response> {
    let kind = kind.parse::<Kind>().map_err(|error| problem(404, error.to_string()))?;
    let none = || problem(404, format!("there is no {kind} of this name"));
    let key = Key { kind, name: name.parse().map_err(|_| none())? };
    site.index.object(&key).ok_or_else(none)
}

/// The version that `text` selects, and whether it names the version exactly.
pub(in crate::http) fn choose<'a>(
    object: &'a Object,
    text: &str,
) -> Result<(&'a VersionEntry, bool), Response> {
    let key = &object.key;
    if let Ok(version) = Version::parse(text) {
        let entry = object.version(&version);
        let entry = entry.ok_or_else(|| problem(404, format!("{key} has no version {version}")))?;
        return Ok((entry, true));
    }
    let found = match VersionReq::parse(text) {
        _ if text == LATEST => object.newest().map(|(entry, _)| entry),
        Ok(range) => object.matching(&range),
        Err(_) => {
            let detail =
                "a version is MAJOR.MINOR.PATCH, a range such as `^1.2` or `>=1, <3`, or `latest`";
            return Err(problem(404, detail));
        }
    };
    let entry = found.ok_or_else(|| {
        problem(404, format!("{key} has no version in this range that is not yanked"))
    })?;
    Ok((entry, false))
}

/// The header fields of a response about a version.
struct Fields {
    location: Option<String>,
    policy: CachePolicy,
}

impl Fields {
    fn new(key: &Key, entry: &VersionEntry, exact: bool, suffix: &str) -> Self {
        if exact {
            return Self { location: None, policy: CachePolicy::Immutable };
        }
        let name = encode(key.name.as_str());
        let version = encode(&entry.version.to_string());
        let location = format!("/v1/objects/{}/{name}/{version}{suffix}", key.kind);
        Self { location: Some(location), policy: CachePolicy::Revalidate }
    }

    fn add(&self, response: Response, tag: &Tag) -> Response {
        let response = response.any_origin().cache_policy(self.policy).tag(tag);
        match &self.location {
            Some(location) => response.field("Content-Location", location),
            None => response,
        }
    }
}

/// Reads a version from the store and makes the response from it.
fn from_store(
    site: &Arc<Site>,
    key: &Key,
    entry: &VersionEntry,
    answer: impl FnOnce(&Site, Published) -> Response + Send + 'static,
) -> Reply {
    let site = Arc::clone(site);
    let key = key.clone();
    let version = entry.version.clone();
    Reply::Job(Job::new(move || match site.store.get(&key, &version) {
        Ok(Some(published)) => answer(&site, published),
        Ok(None) => problem(404, format!("{key} has no version {version}")),
        Err(error) => of_store(&error),
    }))
}
