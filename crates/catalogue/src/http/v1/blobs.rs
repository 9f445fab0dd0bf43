//! Packages by their digest.

use std::sync::Arc;

use levada_core::{Digest, sha256};

use crate::http::cache::{CacheKey, Cached};
use crate::http::content::{Content, compress, read_blob};
use crate::http::problem::{of_store, problem};
use crate::http::query::Query;
use crate::http::range::Range;
use crate::http::reply::{HandlerResult, Job, Reply};
use crate::http::request::{Method, Request};
use crate::http::response::{CachePolicy, Response};
use crate::http::site::Site;
use crate::http::tag::Tag;
use crate::http::verify::{Verdict, is_long};
use crate::model::parse_digest;

/// Packages of these lengths are compressed; in bytes. A shorter one fits into a few packets, and a
/// longer one would occupy a thread for too long.
const COMPRESSIBLE: std::ops::RangeInclusive<u64> = 4 * 1024..=16 * 1024 * 1024;

/// The variant of a package that a request selects.
#[derive(Clone, Debug)]
struct Variant {
    range: Option<Vec<u8>>,
    /// The client accepts gzip, and the media type is compressible.
    compressed: bool,
    /// The media type is compressible, so the response varies with `Accept-Encoding`.
    varies: bool,
    media_type: Arc<str>,
    /// The length of the package, in bytes.
    length: u64,
}

/// `/v1/blobs/{digest}`.
pub(super) fn blob(site: &Arc<Site>, request: &Request<'_>, text: &str) -> HandlerResult {
    Query::parse(request.query, &[])?;
    let digest = parse_digest(text).map_err(|error| problem(404, error.to_string()))?;
    let package = site.index.package(&digest);
    let (media_type, length) = package.ok_or_else(|| problem(404, "there is no such package"))?;
    let varies = is_text(&media_type);
    for tag in [Tag::Body(digest), Tag::Compressed(digest)] {
        if tag.is_known(request) {
            let variant = Variant { range: None, compressed: false, varies, media_type, length };
            let is_sound =
                site.bodies.verifier.known(&digest, site.store.replaced()) == Verdict::Sound;
            return Ok(Reply::Ready(variant.fields(Response::new(304), &tag, is_sound)));
        }
    }
    // Range applies to GET only (RFC 9110 section 14.2).
    let ranged = request.method == Method::Get && Tag::Body(digest).permits_range(request);
    let range = request.headers.range.value().filter(|_| ranged).map(<[u8]>::to_vec);
    let compressed = varies && range.is_none() && accepts_gzip(request);
    let variant = Variant { range, compressed, varies, media_type, length };
    if let Some(response) = variant.cached(site, &digest) {
        return Ok(Reply::Ready(response));
    }
    let site = Arc::clone(site);
    Ok(Reply::Job(Job::new(move || variant.read(&site, &digest))))
}

impl Variant {
    /// The response, if its content is in the cache.
    fn cached(&self, site: &Site, digest: &Digest) -> Option<Response> {
        let generation = site.store.replaced();
        let cached = |key| site.bodies.cache.find(&key, generation);
        if self.compressed
            && let Cached::Content(content, _) = cached(CacheKey::Compressed(*digest))?
        {
            return Some(self.respond_compressed(&content, digest));
        }
        match cached(CacheKey::Blob(*digest))? {
            Cached::Content(content, _) if content.is_whole() => {
                let verdict = match is_long(&content) {
                    true => site.bodies.verifier.check(digest, &content, generation),
                    false => site.bodies.verifier.known(digest, generation),
                };
                match verdict {
                    Verdict::Sound => Some(self.respond(&content, digest, true)),
                    Verdict::Unknown if is_long(&content) => {
                        Some(self.respond(&content, digest, false))
                    }
                    Verdict::Unknown | Verdict::Damaged => None,
                }
            }
            _ => None,
        }
    }

    /// The response, read from the store. Blocks.
    fn read(&self, site: &Site, digest: &Digest) -> Response {
        let generation = site.store.replaced();
        let content = match site.store.open_blob(digest) {
            Ok(Some(blob)) => Content::of_blob(blob),
            Ok(None) => return problem(500, "the package is not in the store"),
            Err(error) => return of_store(&error),
        };
        let Ok(content) = content else { return problem(500, "the package cannot be read") };
        let verdict = match content.length() == self.length {
            true => site.bodies.verifier.check(digest, &content, generation),
            false => site.bodies.verifier.record(digest, false, generation),
        };
        if verdict == Verdict::Damaged {
            return damaged();
        }
        let entry = Cached::Content(content.clone(), [0; 16]);
        site.bodies.cache.put(CacheKey::Blob(*digest), generation, entry);
        if self.compressed
            && let Some(Cached::Content(shorter, _)) = compressed(site, digest, content.length())
        {
            return self.respond_compressed(&shorter, digest);
        }
        // Compressing it may have verified it.
        match site.bodies.verifier.known(digest, generation) {
            Verdict::Damaged => damaged(),
            verdict => self.respond(&content, digest, verdict == Verdict::Sound),
        }
    }

    fn respond_compressed(&self, content: &Content, digest: &Digest) -> Response {
        let response = Response::new(200).field("Content-Encoding", "gzip");
        self.fields(response, &Tag::Compressed(*digest), true).body(content.body())
    }

    fn respond(&self, content: &Content, digest: &Digest, verified: bool) -> Response {
        let tag = Tag::Body(*digest);
        let length = content.length();
        match Range::parse(self.range.as_deref(), length) {
            Range::Whole => self.fields(Response::new(200), &tag, verified).body(content.body()),
            Range::Part(from, to) => {
                let part = format!("bytes {from}-{}/{length}", to - 1);
                let response = Response::new(206).field("Content-Range", &part);
                self.fields(response, &tag, verified).body(content.part(from, to))
            }
            Range::Unsatisfiable => problem(416, format!("the package has {length} bytes"))
                .field("Content-Range", &format!("bytes */{length}")),
        }
    }

    /// Adds the header fields. A package is code of a third party: the sandbox gives it an opaque
    /// origin in a browser that opens it. A package that is not verified yet must not be cached;
    /// its tag lets a client resume an interrupted download.
    fn fields(&self, response: Response, tag: &Tag, verified: bool) -> Response {
        let response = response
            .field("Content-Type", &self.media_type)
            .field("Accept-Ranges", "bytes")
            .field("Content-Security-Policy", "default-src 'none'; sandbox")
            .any_origin()
            .cache_policy(if verified { CachePolicy::Immutable } else { CachePolicy::NoStore })
            .tag(tag);
        if self.varies { response.field("Vary", "Accept-Encoding") } else { response }
    }
}

fn damaged() -> Response {
    problem(500, "the package is damaged: publish it again to repair it")
}

/// The compressed package, or that compression saves too little. `None` if that cannot be decided
/// now: then the package is sent uncompressed.
fn compressed(site: &Site, digest: &Digest, length: u64) -> Option<Cached> {
    let _build = site.bodies.lock_build(digest);
    let key = CacheKey::Compressed(*digest);
    let generation = site.store.replaced();
    if let Some(found) = site.bodies.cache.find(&key, generation) {
        return Some(found);
    }
    let cached = if COMPRESSIBLE.contains(&length) {
        let blob = site.store.open_blob(digest).ok().flatten()?;
        let bytes = read_blob(blob, *COMPRESSIBLE.end()).ok()?;
        let is_sound = sha256(&[&bytes]) == *digest;
        if site.bodies.verifier.record(digest, is_sound, generation) == Verdict::Damaged {
            return None;
        }
        match compress(&bytes) {
            Some(shorter) => Cached::Content(
                Content::temporary(shorter, &site.bodies.budget, || site.store.scratch())?,
                [0; 16],
            ),
            None => Cached::Incompressible,
        }
    } else {
        Cached::Incompressible
    };
    site.bodies.cache.put(key, generation, cached.clone());
    Some(cached)
}

/// Whether packages of this media type are compressible: code and text.
fn is_text(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || ["application/javascript", "application/json", "application/wasm", "application/xml"]
            .contains(&essence.as_str())
}

/// Whether `Accept-Encoding` lists `gzip` with a weight other than 0 (RFC 9110 section 12.5.3). `*`
/// is not used.
fn accepts_gzip(request: &Request<'_>) -> bool {
    let value =
        request.headers.accept_encoding.value().and_then(|value| str::from_utf8(value).ok());
    value.unwrap_or_default().split(',').any(|one| {
        let (coding, weight) = one.split_once(';').unwrap_or((one, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        coding.trim().eq_ignore_ascii_case("gzip") && !weight.trim_matches(['0', '.']).is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::{Parsed, parse};

    #[test]
    fn accepts_gzip_if_it_is_listed_with_a_weight() {
        for (value, accepted) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=1", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("identity", false),
            ("*", false),
            ("", false),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {value}\r\n\r\n");
            let Parsed::Request(request, _) = parse(text.as_bytes()) else { panic!("{text}") };
            assert_eq!(accepts_gzip(&request), accepted, "{value}");
        }
    }

    #[test]
    fn code_and_text_are_compressible() {
        for media_type in [
            "text/javascript",
            "Text/HTML; charset=utf-8",
            "application/ld+json",
            "application/wasm",
        ] {
            assert!(is_text(media_type), "{media_type}");
        }
        for media_type in ["application/octet-stream", "image/png", "application/gzip"] {
            assert!(!is_text(media_type), "{media_type}");
        }
    }
}
