//! What a response's head says about compression, and what it says after it.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use crate::http::{RequestHead, ResponseHead};
use crate::middlebox::encode_response;

/// What becomes of a response.
pub(super) enum Plan {
    /// It passes as it is.
    Pass,
    /// It could have been compressed for another request: this is its head.
    Vary(Vec<u8>),
    /// Its body is compressed: this is its head.
    Compress(Vec<u8>),
}

impl Plan {
    /// The plan for a response with this head. `accepts`: the request allows gzip.
    pub(super) fn of(head: &[u8], accepts: bool) -> Self {
        let Ok(mut head) = ResponseHead::decode(head) else { return Self::Pass };
        if !is_compressible(&head) {
            return Self::Pass;
        }
        add_vary(&mut head.fields);
        if !accepts {
            return Self::Vary(encode_response(&head));
        }
        let fields = &mut head.fields;
        fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        // Ranges are of the bytes of one encoding, and this one is made anew each time.
        fields.remove(header::ACCEPT_RANGES);
        weaken(fields);
        Self::Compress(encode_response(&head))
    }
}

/// Whether the client takes gzip (RFC 9110 section 12.5.3), and the response to its request has a
/// body that is whole.
pub(super) fn accepts_gzip(request: &RequestHead) -> bool {
    let weight = |coding: &str| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let weight = weight.map_or(Some(1.0), |weight| weight.trim().parse::<f32>().ok());
        (name, weight.unwrap_or(0.0))
    };
    let values = request.fields.get_all(header::ACCEPT_ENCODING);
    let values = values.iter().filter_map(|value| value.to_str().ok());
    let codings: Vec<(String, f32)> =
        values.flat_map(|value| value.split(',').map(weight)).collect();
    let of = |names: &[&str]| {
        let found = codings.iter().find(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, weight)| *weight > 0.0)
    };
    let accepts = of(&["gzip", "x-gzip"]).or(of(&["*"])).unwrap_or(false);
    accepts && request.method != Method::HEAD
}

fn is_compressible(head: &ResponseHead) -> bool {
    // Digests of the content would no longer hold.
    const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];
    let fields = &head.fields;
    let no_transform = fields.get_all(header::CACHE_CONTROL).iter().any(|value| {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        text.contains("no-transform")
    });
    head.status == StatusCode::OK
        && !fields.contains_key(header::CONTENT_ENCODING)
        && !fields.contains_key(header::CONTENT_RANGE)
        && !DIGESTS.iter().any(|name| fields.contains_key(*name))
        && !no_transform
        && fields.get(header::CONTENT_TYPE).is_some_and(is_text)
}

/// Whether a media type is one of text, or of something else that compresses well.
fn is_text(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (kind, name) = essence.split_once('/').unwrap_or_default();
    const APPLICATION: [&str; 9] = [
        "javascript",
        "x-javascript",
        "json",
        "manifest+json",
        "wasm",
        "xml",
        "graphql",
        "x-ndjson",
        "vnd.ms-fontobject",
    ];
    // Events are sent one by one, and are short.
    match kind {
        "text" => name != "event-stream",
        "application" if APPLICATION.contains(&name) => true,
        "application" | "image" | "model" => name.ends_with("+json") || name.ends_with("+xml"),
        "font" => matches!(name, "ttf" | "otf"),
        _ => false,
    }
}

fn add_vary(fields: &mut HeaderMap) {
    const NAME: HeaderName = header::ACCEPT_ENCODING;
    let values = fields.get_all(header::VARY);
    let has = values.iter().filter_map(|value| value.to_str().ok()).any(|value| {
        let mut names = value.split(',').map(str::trim);
        names.any(|name| name == "*" || name.eq_ignore_ascii_case(NAME.as_str()))
    });
    if !has {
        fields.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// A strong entity tag stands for the same bytes, and these are others (RFC 9110 section 8.8.1).
fn weaken(fields: &mut HeaderMap) {
    let Some(tag) = fields.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"")) else {
        return;
    };
    let weak = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat());
    match weak {
        Ok(weak) => fields.insert(header::ETAG, weak),
        Err(_) => fields.remove(header::ETAG),
    };
}
