//! Requests in one session, and the heads of answers that the cache gives to them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};

use super::pending::Pending;
use super::rules::RequestRules;
use super::store::Entry;
use super::target::Target;
use crate::http::ResponseHead;
use crate::middlebox::encode_response;

/// A request that passes.
#[derive(Default)]
pub(super) struct Passing {
    pub(super) head: Vec<u8>,
    /// Something of it has passed.
    pub(super) begun: bool,
    /// It has bytes in another context than that of the head.
    pub(super) content: bool,
    pub(super) request: Request,
}

/// What becomes of a request.
#[derive(Default)]
pub(super) enum Request {
    /// It had no head; a middlebox in front has answered it.
    #[default]
    Unread,
    /// Its answer is not stored, for this reason.
    Bypassed(&'static str),
    /// It is not safe: an answer without an error makes what is stored invalid.
    Unsafe(Method, Target),
    /// It was sent on; its answer may be stored.
    Missed(Box<Missed>),
    /// It was emptied; this is its answer.
    Hit(Arc<Entry>, Duration),
    /// It was emptied, since it wants only a stored answer, and there is none.
    Absent,
}

pub(super) struct Missed {
    pub(super) rules: RequestRules,
    pub(super) pending: Pending,
    pub(super) fields: HeaderMap,
    pub(super) sent: Instant,
}

/// The head of a stored answer.
pub(super) fn stored_head(entry: &Entry, age: Duration) -> Vec<u8> {
    let mut fields = entry.fields.clone();
    fields.insert(header::AGE, age.as_secs().into());
    encode_response(&ResponseHead { status: StatusCode::OK, fields })
}

/// The head of an answer that says that none is stored (RFC 9111 section 5.2.1.7).
pub(super) fn absent_head() -> Vec<u8> {
    let mut fields = HeaderMap::new();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    encode_response(&ResponseHead { status: StatusCode::GATEWAY_TIMEOUT, fields })
}
