//! Reads the body of a request (RFC 9112 sections 6 and 7), up to a maximum length. It is read to
//! its end, because the next request of the connection begins there.

use tokio::sync::OwnedSemaphorePermit;

use super::request::{BodyLength, Refusal};

/// The maximum length of the body of a request, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// A longer body needs a permit of `Limits::long_bodies`; in bytes.
const MAX_WITHOUT_PERMIT: usize = 4 * 1024;
/// The maximum length of a line of a chunked body, in bytes: a chunk size with its extensions, or a
/// trailer field.
const MAX_LINE: usize = 1024;
/// The maximum number of trailer fields.
const MAX_TRAILERS: usize = 16;

const TOO_LONG: Refusal =
    Refusal { status: 413, detail: "the body of the request has more than 65536 bytes" };
const MALFORMED: Refusal =
    Refusal { status: 400, detail: "the chunked body of the request is malformed" };

/// A request whose body is being read.
pub(super) struct BodyReader {
    /// The head, which was parsed successfully.
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    remaining: Remaining,
    permit: Option<OwnedSemaphorePermit>,
}

/// What is still to be read.
enum Remaining {
    Bytes(usize),
    Chunks(Chunks),
}

impl BodyReader {
    /// Reads the body of the request with this head.
    ///
    /// # Errors
    /// The body is too long.
    pub fn new(head: &[u8], length: BodyLength) -> Result<Self, Refusal> {
        let remaining = match length {
            BodyLength::None => Remaining::Bytes(0),
            BodyLength::Bytes(length) => Remaining::Bytes(
                usize::try_from(length).ok().filter(|it| *it <= MAX_BODY).ok_or(TOO_LONG)?,
            ),
            BodyLength::Chunked => Remaining::Chunks(Chunks::Size { size: 0, digits: 0, seen: 0 }),
        };
        Ok(Self { head: head.to_vec(), body: Vec::new(), remaining, permit: None })
    }

    pub fn is_done(&self) -> bool {
        matches!(self.remaining, Remaining::Bytes(0) | Remaining::Chunks(Chunks::Done))
    }

    /// Consumes the part of `bytes` that belongs to the body, and returns its length in bytes.
    /// `acquire` returns a permit for a long body.
    ///
    /// # Errors
    /// The body is too long or malformed, or there is no permit.
    pub fn read(
        &mut self,
        bytes: &[u8],
        acquire: impl FnOnce() -> Option<OwnedSemaphorePermit>,
    ) -> Result<usize, Refusal> {
        let used = match &mut self.remaining {
            Remaining::Bytes(remaining) => {
                let count = bytes.len().min(*remaining);
                self.body.extend_from_slice(&bytes[..count]);
                *remaining -= count;
                count
            }
            Remaining::Chunks(chunks) => chunks.read(bytes, &mut self.body)?,
        };
        if self.body.len() > MAX_WITHOUT_PERMIT && self.permit.is_none() {
            const FULL: &str = "too many long request bodies at once: try again in a moment";
            self.permit = Some(acquire().ok_or(Refusal { status: 503, detail: FULL })?);
        }
        Ok(used)
    }
}

/// The state of the parser of a chunked body: where the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// In the size of a chunk, of which `digits` digits and `seen` bytes were read.
    Size {
        size: usize,
        digits: usize,
        seen: usize,
    },
    /// In an extension behind a size.
    Extension {
        size: usize,
        seen: usize,
    },
    /// Before the line feed behind a size.
    SizeEnd {
        size: usize,
    },
    /// In the data of a chunk.
    Data {
        left: usize,
    },
    /// Behind the data of a chunk, before the carriage return or, with `feed`, the line feed.
    DataEnd {
        feed: bool,
    },
    /// In a trailer field of which `seen` bytes were read, behind `count` others.
    Trailer {
        seen: usize,
        count: usize,
    },
    /// Before the line feed behind a trailer field, or behind the empty line that ends the body.
    TrailerEnd {
        seen: usize,
        count: usize,
    },
    Done,
}

impl Chunks {
    /// Appends the data in `bytes` to `body`, and returns how many bytes were consumed.
    fn read(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<usize, Refusal> {
        let mut at = 0;
        while at < bytes.len() && *self != Self::Done {
            if let Self::Data { left } = self {
                let count = (bytes.len() - at).min(*left);
                body.extend_from_slice(&bytes[at..at + count]);
                at += count;
                *left -= count;
                if *left == 0 {
                    *self = Self::DataEnd { feed: false };
                }
                continue;
            }
            *self = self.step(bytes[at], body.len())?;
            at += 1;
        }
        Ok(at)
    }

    /// The state behind `byte`, which is not data of a chunk; `length` bytes of data were read
    /// before.
    fn step(self, byte: u8, length: usize) -> Result<Self, Refusal> {
        Ok(match (self, byte) {
            (Self::Size { size, digits, seen }, byte) if byte.is_ascii_hexdigit() && digits < 8 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0) as usize;
                Self::Size { size: size * 16 + digit, digits: digits + 1, seen: seen + 1 }
            }
            (Self::Size { size, digits: 1.., .. }, b'\r') => Self::SizeEnd { size },
            (Self::Size { size, digits: 1.., seen }, b';' | b' ' | b'\t') => {
                Self::Extension { size, seen }
            }
            (Self::Extension { size, .. }, b'\r') => Self::SizeEnd { size },
            (Self::Extension { size, seen }, byte) if byte != b'\n' && seen < MAX_LINE => {
                Self::Extension { size, seen: seen + 1 }
            }
            (Self::SizeEnd { size: 0 }, b'\n') => Self::Trailer { seen: 0, count: 0 },
            (Self::SizeEnd { size }, b'\n') if length + size > MAX_BODY => return Err(TOO_LONG),
            (Self::SizeEnd { size }, b'\n') => Self::Data { left: size },
            (Self::DataEnd { feed: false }, b'\r') => Self::DataEnd { feed: true },
            (Self::DataEnd { feed: true }, b'\n') => Self::Size { size: 0, digits: 0, seen: 0 },
            (Self::Trailer { seen, count }, b'\r') => Self::TrailerEnd { seen, count },
            (Self::Trailer { seen, count }, byte)
                if byte != b'\n' && seen < MAX_LINE && count < MAX_TRAILERS =>
            {
                Self::Trailer { seen: seen + 1, count }
            }
            (Self::TrailerEnd { seen: 0, .. }, b'\n') => Self::Done,
            (Self::TrailerEnd { count, .. }, b'\n') => Self::Trailer { seen: 0, count: count + 1 },
            _ => return Err(MALFORMED),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` in pieces of `piece` bytes: the body, and how many bytes were consumed.
    fn read(
        length: BodyLength,
        bytes: &[u8],
        piece: usize,
    ) -> Result<Option<(Vec<u8>, usize)>, u16> {
        let mut reader = BodyReader::new(b"", length).map_err(|refusal| refusal.status)?;
        let mut used = 0;
        let permits = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        while !reader.is_done() && used < bytes.len() {
            let end = bytes.len().min(used + piece);
            let count = reader
                .read(&bytes[used..end], || permits.clone().try_acquire_owned().ok())
                .map_err(|refusal| refusal.status)?;
            used += count;
        }
        Ok(reader.is_done().then_some((reader.body, used)))
    }

    #[test]
    fn reads_a_body_to_its_end() {
        for piece in [1, 2, 3, 100] {
            assert_eq!(
                read(BodyLength::Bytes(3), b"abcGET", piece),
                Ok(Some((b"abc".to_vec(), 3)))
            );
            assert_eq!(read(BodyLength::Bytes(3), b"ab", piece), Ok(None));
            for text in [
                "3\r\nabc\r\n1;x=\"y\"\r\nd\r\n0\r\n\r\n",
                "0000004 \r\nabcd\r\n0;last\r\nX: y\r\nZ: \r\n\r\n",
            ] {
                let all = format!("{text}GET");
                let expected = Ok(Some((b"abcd".to_vec(), text.len())));
                assert_eq!(read(BodyLength::Chunked, all.as_bytes(), piece), expected, "{text}");
            }
        }
    }

    #[test]
    fn refuses_malformed_chunks_and_long_bodies() {
        let long = format!("1;{}\r\n", "x".repeat(MAX_LINE + 1));
        let fields = format!("0\r\n{}\r\n", "X: y\r\n".repeat(MAX_TRAILERS + 1));
        for (text, status) in [
            ("\r\n", 400),
            ("x\r\n", 400),
            ("-1\r\n", 400),
            ("1\nx", 400),
            ("1\r\nxx\r\n", 400),
            ("000000001\r\n", 400),
            ("0\r\nX\n", 400),
            (&long, 400),
            (&fields, 400),
            ("10001\r\n", 413),
            ("ffffffff\r\n", 413),
        ] {
            assert_eq!(read(BodyLength::Chunked, text.as_bytes(), 7), Err(status), "{text}");
        }
        assert_eq!(read(BodyLength::Bytes(MAX_BODY as u64 + 1), b"", 1), Err(413));
        let most = vec![b'x'; MAX_BODY];
        let expected = Ok(Some((most.clone(), MAX_BODY)));
        assert_eq!(read(BodyLength::Bytes(MAX_BODY as u64), &most, 5000), expected);
    }

    #[test]
    fn a_long_body_needs_a_permit() {
        let mut reader =
            BodyReader::new(b"", BodyLength::Bytes(2 * MAX_WITHOUT_PERMIT as u64)).unwrap();
        assert_eq!(reader.read(&[0; MAX_WITHOUT_PERMIT], || None), Ok(MAX_WITHOUT_PERMIT));
        assert_eq!(reader.read(&[0; MAX_WITHOUT_PERMIT], || None).unwrap_err().status, 503);
    }

    #[test]
    fn any_split_of_the_input_gives_the_same_result() {
        bolero::check!().with_type::<(bool, Vec<u8>, u8)>().for_each(|(chunked, bytes, piece)| {
            let length = if *chunked { BodyLength::Chunked } else { BodyLength::Bytes(9) };
            let piece = usize::from(*piece).max(1);
            let pieces = read(length, bytes, piece);
            assert_eq!(pieces, read(length, bytes, usize::MAX / 2));
            if let Ok(Some((body, used))) = pieces {
                assert!(body.len() <= used && used <= bytes.len());
            }
        });
    }
}
