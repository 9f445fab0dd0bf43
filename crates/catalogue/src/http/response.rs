//! A response: its status, its header fields and its body.

use std::cell::RefCell;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::body::Body;
use super::request::Request;
use super::tag::Tag;

/// The response to a request.
#[derive(Debug)]
pub struct Response {
    pub(super) status: u16,
    /// Header lines, each with its `\r\n`; all but Date, Cache-Control, Content-Length and
    /// Connection.
    pub(super) fields: Vec<u8>,
    pub(super) body: Body,
    /// `None` if caches may decide by themselves.
    pub(super) policy: Option<CachePolicy>,
}

/// How long caches may store a response (RFC 9111 section 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachePolicy {
    /// It never changes.
    Immutable,
    /// It must be revalidated with its entity tag before each use.
    Revalidate,
    /// It must not be stored.
    NoStore,
}

impl CachePolicy {
    fn line(self) -> &'static [u8] {
        match self {
            Self::Immutable => b"Cache-Control: public, max-age=31536000, immutable\r\n",
            Self::Revalidate => b"Cache-Control: no-cache\r\n",
            Self::NoStore => b"Cache-Control: no-store\r\n",
        }
    }
}

impl Response {
    /// A response without a body.
    pub fn new(status: u16) -> Self {
        let mut response = Self::for_scripts(status);
        response.fields.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
        response
    }

    /// As [`Self::new`] without `nosniff`: a browser runs the body as a script whatever its media
    /// type is.
    pub(super) fn for_scripts(status: u16) -> Self {
        Self { status, fields: Vec::with_capacity(384), body: Body::empty(), policy: None }
    }

    /// A response with a body of the type `media_type`.
    pub fn text(status: u16, media_type: &str, body: impl Into<Bytes>) -> Self {
        let mut response = Self::new(status).field("Content-Type", media_type);
        response.body = Body::Whole(body.into());
        response
    }

    /// The body with its entity tag, or status 304 if the client has it. Caches must revalidate it.
    pub(super) fn revalidated(
        request: &Request<'_>,
        media_type: &str,
        body: impl Into<Bytes>,
    ) -> Self {
        let body = body.into();
        let tag = Tag::of(&body);
        let response =
            if tag.is_known(request) { Self::new(304) } else { Self::text(200, media_type, body) };
        response.cache_policy(CachePolicy::Revalidate).tag(&tag)
    }

    /// Adds a header field. Bytes that a value must not contain are left out (RFC 9110 section
    /// 5.5).
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.extend_from_slice(name.as_bytes());
        self.fields.extend_from_slice(b": ");
        self.fields
            .extend(value.bytes().filter(|byte| *byte == b'\t' || (b' '..=b'~').contains(byte)));
        self.fields.extend_from_slice(b"\r\n");
        self
    }

    /// Allows scripts of all origins to read the response (CORS): no response depends on
    /// credentials.
    #[must_use]
    pub(super) fn any_origin(mut self) -> Self {
        self.fields.extend_from_slice(
            b"Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: ETag, Content-Location, Content-Range, Accept-Ranges, Levada-Catalogue-Behind\r\n",
        );
        self
    }

    #[must_use]
    pub(super) fn cache_policy(mut self, policy: CachePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    #[must_use]
    pub(super) fn tag(mut self, tag: &Tag) -> Self {
        self.fields.extend_from_slice(b"ETag: ");
        tag.write(&mut self.fields);
        self.fields.extend_from_slice(b"\r\n");
        self
    }

    #[must_use]
    pub(super) fn body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    /// Appends the head to `out`.
    pub(super) fn write_head(&self, out: &mut Vec<u8>, connection: Persistence) {
        if self.status == 200 {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            // Writing to a vector does not fail.
            let _ = write!(out, "HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        }
        write_date(out);
        out.extend_from_slice(&self.fields);
        out.extend_from_slice(self.policy.map_or(b"", CachePolicy::line));
        if !matches!(self.status, 204 | 304)
            && let Some(length) = self.body.length()
        {
            let _ = write!(out, "Content-Length: {length}\r\n");
        }
        out.extend_from_slice(match connection {
            Persistence::KeepAlive => b"\r\n".as_slice(),
            Persistence::KeepAliveExplicit => b"Connection: keep-alive\r\n\r\n",
            Persistence::Close => b"Connection: close\r\n\r\n",
        });
    }
}

/// What happens to the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    KeepAlive,
    /// It is kept, which an HTTP/1.0 client must be told.
    KeepAliveExplicit,
    Close,
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        410 => "Gone",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

thread_local! {
    /// The Date line, and the second for which it was formatted.
    static DATE: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
}

fn write_date(out: &mut Vec<u8>) {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    DATE.with_borrow_mut(|(of, line)| {
        if *of != second || line.is_empty() {
            *of = second;
            *line = format!("Date: {}\r\n", httpdate::fmt_http_date(now)).into_bytes();
        }
        out.extend_from_slice(line);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_value_cannot_start_another_line() {
        bolero::check!().with_type::<(u16, String)>().for_each(|(status, value)| {
            let response = Response::text(*status, "text/plain", "body").field("X", value);
            let mut out = Vec::new();
            response.write_head(&mut out, Persistence::Close);
            let text = String::from_utf8(out).unwrap();
            let lines = text.strip_suffix("\r\n\r\n").unwrap().split("\r\n");
            let names: Vec<_> = lines.skip(1).map(|line| line.split(':').next().unwrap()).collect();
            let with_length = !matches!(status, 204 | 304);
            assert_eq!(names.len(), 5 + usize::from(with_length), "{text}");
        });
    }
}
