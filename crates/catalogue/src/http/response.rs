//! An answer: its status, its fields and its body.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::content::Held;
use super::tag::Tag;
use super::watch::Watch;

/// What is answered.
#[derive(Debug)]
pub struct Response {
    pub(super) status: u16,
    /// Lines with `\r\n`; all but Date, Content-Length and Connection.
    pub(super) fields: Vec<u8>,
    pub(super) body: Body,
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// In memory.
    Whole(Bytes),
    /// Parts in memory, one behind the other; some may be empty.
    Parts(Box<[Bytes; 3]>),
    /// The bytes of a file from an offset up to, and not including, another.
    File(Arc<Held>, u64, u64),
    /// A stream of events, which ends with the connection.
    #[doc(hidden)]
    Events(Box<Watch>),
}

impl Body {
    /// Without a byte.
    pub const fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    /// How many bytes; none if nobody knows.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Parts(parts) => Some(parts.iter().map(|part| part.len() as u64).sum()),
            Self::File(_, from, to) => Some(to.saturating_sub(*from)),
            Self::Events(_) => None,
        }
    }
}

/// How long an answer may be kept by whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// It never changes.
    Forever,
    /// It must be asked for again each time; with its tag that is cheap.
    Revalidate,
    /// Not at all.
    Never,
}

impl Response {
    /// An answer without a body.
    pub fn new(status: u16) -> Self {
        let mut response = Self::for_scripts(status);
        response.fields.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
        response
    }

    /// As [`Self::new`], but a browser may run its body as a script whatever type it states.
    pub(super) fn for_scripts(status: u16) -> Self {
        Self { status, fields: Vec::with_capacity(384), body: Body::empty() }
    }

    /// An answer with a body of the type `media_type`.
    pub fn text(status: u16, media_type: &str, body: impl Into<Bytes>) -> Self {
        let mut response = Self::new(status).field("Content-Type", media_type);
        response.body = Body::Whole(body.into());
        response
    }

    /// Adds a field. Of the value only what can stand in one is taken (RFC 9110 section 5.5).
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.extend_from_slice(name.as_bytes());
        self.fields.extend_from_slice(b": ");
        self.fields
            .extend(value.bytes().filter(|byte| *byte == b'\t' || (b' '..=b'~').contains(byte)));
        self.fields.extend_from_slice(b"\r\n");
        self
    }

    /// For scripts of all origins: nothing here depends on who asks.
    #[must_use]
    pub(super) fn shared(mut self) -> Self {
        self.fields.extend_from_slice(
            b"Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: ETag, Content-Location, Content-Range, Accept-Ranges\r\n",
        );
        self
    }

    #[must_use]
    pub(super) fn keep(mut self, keep: Keep) -> Self {
        self.fields.extend_from_slice(match keep {
            Keep::Forever => b"Cache-Control: public, max-age=31536000, immutable\r\n".as_slice(),
            Keep::Revalidate => b"Cache-Control: no-cache\r\n",
            Keep::Never => b"Cache-Control: no-store\r\n",
        });
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

    /// Writes the head behind what is in `out`.
    pub(super) fn write_head(&self, out: &mut Vec<u8>, connection: Connection) {
        if self.status == 200 {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            // Writing to a vector does not fail.
            let _ = write!(out, "HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        }
        write_date(out);
        out.extend_from_slice(&self.fields);
        if !matches!(self.status, 204 | 304)
            && let Some(length) = self.body.length()
        {
            let _ = write!(out, "Content-Length: {length}\r\n");
        }
        out.extend_from_slice(match connection {
            Connection::Stays => b"\r\n".as_slice(),
            Connection::StaysOld => b"Connection: keep-alive\r\n\r\n",
            Connection::Closes => b"Connection: close\r\n\r\n",
        });
    }
}

/// What becomes of the connection behind an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    Stays,
    /// It stays, and HTTP/1.0 has to be told.
    StaysOld,
    Closes,
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
    /// The line of the second that it was made in.
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
    fn no_value_ends_its_line() {
        bolero::check!().with_type::<(u16, String)>().for_each(|(status, value)| {
            let response = Response::text(*status, "text/plain", "body").field("X", value);
            let mut out = Vec::new();
            response.write_head(&mut out, Connection::Closes);
            let text = String::from_utf8(out).unwrap();
            let lines = text.strip_suffix("\r\n\r\n").unwrap().split("\r\n");
            let names: Vec<_> = lines.skip(1).map(|line| line.split(':').next().unwrap()).collect();
            let with_length = !matches!(status, 204 | 304);
            assert_eq!(names.len(), 5 + usize::from(with_length), "{text}");
        });
    }
}
