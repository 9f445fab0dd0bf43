//! Trailers: the fields that may follow a body. Their names travel before the head, because the
//! receiving side has to announce them (RFC 9110 section 6.6.2).

use hyper::header::{self, HeaderMap, HeaderName};

use super::forwarded::is_trusted_by_origins;
use super::head::{HeadError, put_fields, take_fields};

/// Fields behind a body.
pub(super) struct Trailers(HeaderMap);

/// Whether a field may be a trailer: none that frames or routes a message, modifies a request,
/// authenticates, or says how to read the content (RFC 9110 section 6.5.1), and none of those that
/// the receiver treats itself.
pub(super) fn may_be_trailer(name: &HeaderName) -> bool {
    const NEVER: [HeaderName; 34] = [
        // Framing and connections; these do not travel at all.
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        // Routing, and controls and conditions of requests.
        header::HOST,
        header::CACHE_CONTROL,
        header::EXPECT,
        header::IF_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_NONE_MATCH,
        header::IF_RANGE,
        header::IF_UNMODIFIED_SINCE,
        header::MAX_FORWARDS,
        header::PRAGMA,
        header::RANGE,
        // Authentication and state.
        header::AUTHORIZATION,
        header::COOKIE,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::SET_COOKIE,
        header::WWW_AUTHENTICATE,
        // How to read or treat the response.
        header::AGE,
        header::CONTENT_DISPOSITION,
        header::CONTENT_ENCODING,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::DATE,
        header::EXPIRES,
        header::LOCATION,
        header::RETRY_AFTER,
        header::VARY,
        header::WARNING,
    ];
    !NEVER.contains(name)
        && !matches!(name.as_str(), "keep-alive" | "proxy-connection")
        && !is_trusted_by_origins(name)
}

/// The names that the field Trailer announces, without those that no trailer may have.
pub(super) fn announced(fields: &HeaderMap) -> Vec<HeaderName> {
    let lists = fields.get_all(header::TRAILER).iter().filter_map(|value| value.to_str().ok());
    let names = lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().parse().ok());
    names.filter(may_be_trailer).collect()
}

/// The names as they travel: separated by commas.
pub(super) fn encode_names(names: &[HeaderName]) -> Vec<u8> {
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    names.join(",").into_bytes()
}

/// Decodes what [`encode_names`] makes.
pub(super) fn decode_names(bytes: &[u8]) -> Result<Vec<HeaderName>, HeadError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let name = |bytes| match HeaderName::from_bytes(bytes) {
        Ok(name) if may_be_trailer(&name) => Ok(name),
        _ => Err(HeadError("the name of a trailer")),
    };
    bytes.split(|byte| *byte == b',').map(name).collect()
}

impl Trailers {
    /// Trailers of an origin or a local client: what was not announced, or must not be a trailer,
    /// is dropped.
    pub(super) fn of(fields: &HeaderMap, announced: &[HeaderName]) -> Self {
        let mut kept = HeaderMap::new();
        for (name, value) in fields.iter().filter(|(name, _)| announced.contains(name)) {
            kept.append(name, value.clone());
        }
        Self(kept)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_fields(&mut bytes, &self.0);
        bytes
    }

    /// Decodes what [`Self::encode`] makes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeadError> {
        take_fields(bytes).map(Self)
    }

    /// The fields, if all of them were announced.
    pub(super) fn announced(self, names: &[HeaderName]) -> Result<HeaderMap, HeadError> {
        match self.0.keys().all(|name| names.contains(name)) {
            true => Ok(self.0),
            false => Err(HeadError("a trailer that was not announced")),
        }
    }
}
