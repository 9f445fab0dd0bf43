//! The parts of an answer's head that the generator needs.

use httparse::{EMPTY_HEADER, Response, Status};

use super::Fault;

/// Most header fields of an answer.
const FIELDS: usize = 64;

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The length of the body, in bytes.
    pub length: u64,
    /// Whether the server closes the connection after this answer.
    pub last: bool,
    /// The length of the head, in bytes.
    pub bytes: usize,
}

impl Head {
    /// The head at the beginning of `bytes`; `None` if it is incomplete.
    ///
    /// # Errors
    /// [`Fault::Wrong`] if it is not HTTP/1.1, or has no content length.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        let mut fields = [EMPTY_HEADER; FIELDS];
        let mut response = Response::new(&mut fields);
        let Status::Complete(length) = response.parse(bytes).map_err(|_| Fault::Wrong)? else {
            return Ok(None);
        };
        let status = response.code.ok_or(Fault::Wrong)?;
        let mut body = None;
        let mut last = false;
        for field in response.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(field.value).map_err(|_| Fault::Wrong)?;
                body = Some(text.trim().parse().map_err(|_| Fault::Wrong)?);
            } else if field.name.eq_ignore_ascii_case("connection") {
                last = field.value.eq_ignore_ascii_case(b"close");
            }
        }
        // These have no body, regardless of header fields (RFC 9112, section 6.3).
        let body = if matches!(status, 204 | 304) { Some(0) } else { body };
        Ok(Some(Self { status, length: body.ok_or(Fault::Wrong)?, last, bytes: length }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_head_is_not_parsed() {
        let text = b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 12\r\n\r\nbody";
        let head = Head { status: 200, length: 12, last: true, bytes: text.len() - 4 };
        assert_eq!(Head::parse(text), Ok(Some(head)));
        assert_eq!(Head::parse(&text[..30]), Ok(None));
    }

    #[test]
    fn a_304_answer_has_no_body() {
        let head = Head::parse(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 585\r\n\r\n");
        assert_eq!(head.unwrap().unwrap().length, 0);
    }

    #[test]
    fn a_body_of_unknown_length_is_an_error() {
        assert_eq!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n"), Err(Fault::Wrong));
        assert_eq!(Head::parse(b"SSH-2.0-OpenSSH_9.2\r\n"), Err(Fault::Wrong));
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        bolero::check!().for_each(|bytes| {
            if let Ok(Some(head)) = Head::parse(bytes) {
                assert!(head.bytes <= bytes.len());
            }
        });
    }
}
