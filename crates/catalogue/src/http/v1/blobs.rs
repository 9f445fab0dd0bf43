//! Packages by their digest.

use std::sync::Arc;

use levada_core::{Digest, sha256};

use super::Answered;
use crate::http::Site;
use crate::http::cache::{CacheKey, Cached};
use crate::http::content::{Content, compress, read_blob};
use crate::http::problem::{of_store, problem};
use crate::http::query::Query;
use crate::http::range::Range;
use crate::http::request::{Method, Request};
use crate::http::response::{Keep, Response};
use crate::http::route::{Job, Reply};
use crate::http::tag::Tag;
use crate::http::verify::{Verdict, is_long};
use crate::model::parse_digest;

/// Packages of these lengths are compressed, in bytes: what is shorter fits into a few packets, and what is longer would
/// keep a thread busy for too long.
const COMPRESSED: std::ops::RangeInclusive<u64> = 4 * 1024..=16 * 1024 * 1024;

/// What of a request the answer depends on, apart from the digest.
#[derive(Clone, Debug)]
struct Wish {
    range: Option<Vec<u8>>,
    /// The client reads compressed bodies, and this one is worth it.
    compressed: bool,
    /// The package may be worth compressing, so caches must tell clients apart.
    varies: bool,
    media_type: Arc<str>,
    /// How many bytes the package has.
    length: u64,
}

/// `/v1/blobs/{digest}`.
pub(super) fn answer(site: &Arc<Site>, request: &Request<'_>, text: &str) -> Answered {
    Query::parse(request.query, &[])?;
    let digest = parse_digest(text).map_err(|error| problem(404, error.to_string()))?;
    let package = site.index.package(&digest);
    let (media_type, length) = package.ok_or_else(|| problem(404, "there is no such package"))?;
    let varies = is_text(&media_type);
    for tag in [Tag::Body(digest), Tag::Compressed(digest)] {
        if tag.is_known(request) {
            let wish = Wish { range: None, compressed: false, varies, media_type, length };
            let is_sound = site.verifier.known(&digest, site.store.replaced()) == Verdict::Sound;
            return Ok(Reply::Now(wish.fields(Response::new(304), &tag, is_sound)));
        }
    }
    // Only GET has ranges (RFC 9110 section 14.2).
    let ranged = request.method == Method::Get && Tag::Body(digest).permits_range(request);
    let range = request.range.value().filter(|_| ranged).map(<[u8]>::to_vec);
    let compressed = varies && range.is_none() && accepts_gzip(request);
    let wish = Wish { range, compressed, varies, media_type, length };
    if let Some(response) = wish.find(site, &digest) {
        return Ok(Reply::Now(response));
    }
    let site = Arc::clone(site);
    Ok(Reply::Later(Job::new(move || wish.read(&site, &digest))))
}

impl Wish {
    /// The answer, if what it needs is kept.
    fn find(&self, site: &Site, digest: &Digest) -> Option<Response> {
        let stamp = site.store.replaced();
        let kept = |key| site.cache.find(&key, stamp);
        if self.compressed
            && let Cached::Content(content, _) = kept(CacheKey::Compressed(*digest))?
        {
            return Some(self.respond_compressed(&content, digest));
        }
        match kept(CacheKey::Blob(*digest))? {
            Cached::Content(content, _) if content.is_whole() => {
                let verdict = match is_long(&content) {
                    true => site.verifier.check(digest, &content, stamp),
                    false => site.verifier.known(digest, stamp),
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

    /// The answer, with what the store has. May block.
    fn read(&self, site: &Site, digest: &Digest) -> Response {
        let stamp = site.store.replaced();
        let content = match site.store.open_blob(digest) {
            Ok(Some(blob)) => Content::of_blob(blob),
            Ok(None) => return problem(500, "the package is not in the store"),
            Err(error) => return of_store(&error),
        };
        let Ok(content) = content else { return problem(500, "the package cannot be read") };
        let verdict = match content.length() == self.length {
            true => site.verifier.check(digest, &content, stamp),
            false => site.verifier.note(digest, false, stamp),
        };
        if verdict == Verdict::Damaged {
            return damaged();
        }
        let kept = Cached::Content(content.clone(), [0; 16]);
        site.cache.put(CacheKey::Blob(*digest), stamp, kept);
        if self.compressed
            && let Some(Cached::Content(shorter, _)) = compressed(site, digest, content.length())
        {
            return self.respond_compressed(&shorter, digest);
        }
        // To compress it was to read it.
        match site.verifier.known(digest, stamp) {
            Verdict::Damaged => damaged(),
            verdict => self.respond(&content, digest, verdict == Verdict::Sound),
        }
    }

    fn respond_compressed(&self, content: &Content, digest: &Digest) -> Response {
        let response = Response::new(200).field("Content-Encoding", "gzip");
        self.fields(response, &Tag::Compressed(*digest), true).body(content.body())
    }

    fn respond(&self, content: &Content, digest: &Digest, verified: bool) -> Response {
        let (tag, length) = (Tag::Body(*digest), content.length());
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

    /// A package is code of a third party: a browser that opens one treats it as of no origin at all. What was not
    /// verified yet is not kept by caches; its tag is for the other parts of a download that was cut off.
    fn fields(&self, response: Response, tag: &Tag, verified: bool) -> Response {
        let response = response
            .field("Content-Type", &self.media_type)
            .field("Accept-Ranges", "bytes")
            .field("Content-Security-Policy", "default-src 'none'; sandbox")
            .shared()
            .keep(if verified { Keep::Forever } else { Keep::Never })
            .tag(tag);
        if self.varies { response.field("Vary", "Accept-Encoding") } else { response }
    }
}

fn damaged() -> Response {
    problem(500, "the package is damaged here: publish it once more to heal it")
}

/// The package compressed, or that it does not pay. None if it cannot be tried now: then it comes as it is.
fn compressed(site: &Site, digest: &Digest, length: u64) -> Option<Cached> {
    let _workshop = site.workshop(digest);
    let (key, stamp) = (CacheKey::Compressed(*digest), site.store.replaced());
    if let Some(found) = site.cache.find(&key, stamp) {
        return Some(found);
    }
    let made = if COMPRESSED.contains(&length) {
        let blob = site.store.open_blob(digest).ok().flatten()?;
        let bytes = read_blob(blob, *COMPRESSED.end()).ok()?;
        let is_sound = sha256(&[&bytes]) == *digest;
        if site.verifier.note(digest, is_sound, stamp) == Verdict::Damaged {
            return None;
        }
        match compress(&bytes) {
            Some(shorter) => Cached::Content(
                Content::made(shorter, &site.room, || site.store.scratch())?,
                [0; 16],
            ),
            None => Cached::Incompressible,
        }
    } else {
        Cached::Incompressible
    };
    site.cache.put(key, stamp, made.clone());
    Some(made)
}

/// Whether a package of this type becomes shorter by compression: code and text do.
fn is_text(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || ["application/javascript", "application/json", "application/wasm", "application/xml"]
            .contains(&essence.as_str())
}

/// RFC 9110 section 12.5.3: `gzip` is there and its weight is not 0. `*` and other encodings get the plain bytes.
fn accepts_gzip(request: &Request<'_>) -> bool {
    let value = request.accept_encoding.value().and_then(|value| str::from_utf8(value).ok());
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
    fn gzip_is_sent_to_who_asks_for_it() {
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
    fn code_and_text_are_compressed() {
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
