//! The head of an answer, as far as a generator cares.

use httparse::{EMPTY_HEADER, Response, Status};

use super::Fault;

/// An answer has at most so many fields.
const FIELDS: usize = 64;

/// What the head of an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Bytes of the body that follows.
    pub length: u64,
    /// No other answer follows on this connection.
    pub last: bool,
    /// Bytes of the head itself.
    pub bytes: usize,
}

impl Head {
    /// The head at the beginning of `bytes`, None if it is not complete yet.
    ///
    /// # Errors
    /// [`Fault::Wrong`] if it is none of HTTP/1.1, or does not say how long its body is.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        let mut fields = [EMPTY_HEADER; FIELDS];
        let mut response = Response::new(&mut fields);
        let Status::Complete(length) = response.parse(bytes).map_err(|_| Fault::Wrong)? else {
            return Ok(None);
        };
        let status = response.code.ok_or(Fault::Wrong)?;
        let (mut body, mut last) = (None, false);
        for field in response.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(field.value).map_err(|_| Fault::Wrong)?;
                body = Some(text.trim().parse().map_err(|_| Fault::Wrong)?);
            } else if field.name.eq_ignore_ascii_case("connection") {
                last = field.value.eq_ignore_ascii_case(b"close");
            }
        }
        // These have no body, whatever they say of one (RFC 9112, section 6.3).
        let body = if matches!(status, 204 | 304) { Some(0) } else { body };
        Ok(Some(Self { status, length: body.ok_or(Fault::Wrong)?, last, bytes: length }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let text = b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 12\r\n\r\nbody";
        let head = Head { status: 200, length: 12, last: true, bytes: text.len() - 4 };
        assert_eq!(Head::parse(text), Ok(Some(head)));
        assert_eq!(Head::parse(&text[..30]), Ok(None));
    }

    #[test]
    fn what_was_not_modified_has_no_body() {
        let head = Head::parse(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 585\r\n\r\n");
        assert_eq!(head.unwrap().unwrap().length, 0);
    }

    #[test]
    fn a_body_of_unknown_length_is_not_taken() {
        assert_eq!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n"), Err(Fault::Wrong));
        assert_eq!(Head::parse(b"SSH-2.0-OpenSSH_9.2\r\n"), Err(Fault::Wrong));
    }

    #[test]
    fn bytes_from_outside_never_panic() {
        bolero::check!().for_each(|bytes| {
            if let Ok(Some(head)) = Head::parse(bytes) {
                assert!(head.bytes <= bytes.len());
            }
        });
    }
}
