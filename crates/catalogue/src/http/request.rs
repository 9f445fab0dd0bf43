//! A request (RFC 9112), and how it is parsed.

mod framing;
mod parse;

use crate::host::Host;

pub use parse::{Parsed, parse};

/// The maximum length of a head, in bytes.
pub const MAX_HEAD: usize = 8 * 1024;
/// The maximum number of header fields.
pub const MAX_HEADERS: usize = 64;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD: as GET, without the body.
    Head,
    /// POST: as GET, with conditions; answered under `/.well-known/` only.
    Post,
    /// OPTIONS: which methods are allowed.
    Options,
    /// Any other, which is not answered.
    Other,
}

/// A well-formed request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: Method,
    /// The path, not percent-decoded; `*` for `OPTIONS *`.
    pub path: &'a str,
    /// What follows the first `?`.
    pub query: Option<&'a str>,
    /// Host and port of the target, or of the header `Host`. `None` is possible in HTTP/1.0 only.
    pub host: Option<Host<'a>>,
    /// Whether the client keeps the connection open.
    pub keep_alive: bool,
    /// Whether it is HTTP/1.0.
    pub http_1_0: bool,
    /// The body; empty until it is complete.
    pub body: &'a [u8],
    /// How the end of the body is found.
    pub(super) body_length: BodyLength,
    /// The client waits for status 100 before it sends the body (RFC 9110 section 10.1.1).
    pub(super) expects_continue: bool,
    pub(super) headers: Headers<'a>,
}

/// The header fields that an answer depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Headers<'a> {
    pub if_none_match: Header<'a>,
    pub if_range: Header<'a>,
    pub range: Header<'a>,
    pub accept_encoding: Header<'a>,
    pub last_event_id: Header<'a>,
    pub forwarded_host: Header<'a>,
}

/// The length of the body of a request (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    /// No body.
    None,
    /// `Content-Length`, in bytes, at least one; `u64::MAX` for a larger one.
    Bytes(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// A header field that is used only if it occurs once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Header<'a> {
    #[default]
    Absent,
    Value(&'a [u8]),
    Repeated,
}

impl<'a> Header<'a> {
    fn add(&mut self, value: &'a [u8]) {
        *self = if *self == Self::Absent { Self::Value(value) } else { Self::Repeated };
    }

    /// The value, if the field occurs once.
    pub fn value(self) -> Option<&'a [u8]> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }
}

/// Why a request is refused before it is routed. The connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the response.
    pub status: u16,
    /// What is wrong, in a sentence.
    pub detail: &'static str,
}

const fn refuse(status: u16, detail: &'static str) -> Refusal {
    Refusal { status, detail }
}
