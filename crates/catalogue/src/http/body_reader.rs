//! The body of a request on its way in (RFC 9112 sections 6 and 7): bounded, and read to its end, so that the next
//! request begins where it does.

use tokio::sync::OwnedSemaphorePermit;

use super::request::{Refusal, Sends};

/// The longest body of a request, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// A body that is longer needs one of the [places for long ones](super::LONG_BODIES), in bytes.
const SHORT: usize = 4 * 1024;
/// The longest line of a chunked body, in bytes: a length with its extensions, or a field behind the last chunk.
const MAX_LINE: usize = 1024;
/// The most fields behind the last chunk.
const MAX_TRAILERS: usize = 16;

const TOO_LONG: Refusal =
    Refusal { status: 413, detail: "the body of the request has more than 65536 bytes" };
const MALFORMED: Refusal =
    Refusal { status: 400, detail: "the body of the request is not chunked as it says" };

/// A request whose body is not here yet.
pub(super) struct Incoming {
    /// The head, which was found to be in order.
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    left: Left,
    place: Option<OwnedSemaphorePermit>,
}

/// What has to come.
enum Left {
    Bytes(usize),
    Chunks(Chunks),
}

impl Incoming {
    /// For a request with this head.
    ///
    /// # Errors
    /// The body is too long.
    pub fn new(head: &[u8], sends: Sends) -> Result<Self, Refusal> {
        let left = match sends {
            Sends::Nothing => Left::Bytes(0),
            Sends::Length(length) => Left::Bytes(
                usize::try_from(length).ok().filter(|it| *it <= MAX_BODY).ok_or(TOO_LONG)?,
            ),
            Sends::Chunked => Left::Chunks(Chunks::Size { size: 0, digits: 0, seen: 0 }),
        };
        Ok(Self { head: head.to_vec(), body: Vec::new(), left, place: None })
    }

    pub fn is_done(&self) -> bool {
        matches!(self.left, Left::Bytes(0) | Left::Chunks(Chunks::Done))
    }

    /// Takes what belongs to it from the beginning of `bytes`: how many. `place` gives a place for a long body.
    ///
    /// # Errors
    /// It is too long or malformed, or there is no place.
    pub fn take(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce() -> Option<OwnedSemaphorePermit>,
    ) -> Result<usize, Refusal> {
        let used = match &mut self.left {
            Left::Bytes(left) => {
                let count = bytes.len().min(*left);
                self.body.extend_from_slice(&bytes[..count]);
                *left -= count;
                count
            }
            Left::Chunks(chunks) => chunks.take(bytes, &mut self.body)?,
        };
        if self.body.len() > SHORT && self.place.is_none() {
            const FULL: &str = "too many long bodies are on their way: try again in a moment";
            self.place = Some(place().ok_or(Refusal { status: 503, detail: FULL })?);
        }
        Ok(used)
    }
}

/// Where in a chunked body the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// In the length of a chunk, of which so many digits and so many bytes have come.
    Size {
        size: usize,
        digits: usize,
        seen: usize,
    },
    /// In what may follow a length.
    Extension {
        size: usize,
        seen: usize,
    },
    /// Before the line feed behind a length.
    SizeEnd {
        size: usize,
    },
    /// In a chunk.
    Data {
        left: usize,
    },
    /// Before the carriage return behind a chunk, or the line feed behind that.
    DataEnd {
        feed: bool,
    },
    /// In a field behind the last chunk, of which so many bytes have come, and the number of those before it.
    Trailer {
        seen: usize,
        count: usize,
    },
    /// Before the line feed behind such a field, or behind all of them.
    TrailerEnd {
        seen: usize,
        count: usize,
    },
    Done,
}

impl Chunks {
    /// Adds what `bytes` have of the content to `body`: how many of them belong to the body.
    fn take(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<usize, Refusal> {
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

    /// Where it is behind `byte`, which is none of a content; so much of that is here.
    fn step(self, byte: u8, here: usize) -> Result<Self, Refusal> {
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
            (Self::SizeEnd { size }, b'\n') if here + size > MAX_BODY => return Err(TOO_LONG),
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

    /// The body, and how much of `bytes` it is; in pieces of `piece` bytes.
    fn read(sends: Sends, bytes: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, u16> {
        let mut incoming = Incoming::new(b"", sends).map_err(|refusal| refusal.status)?;
        let mut used = 0;
        let place = tokio::sync::Semaphore::new(1);
        let place = std::sync::Arc::new(place);
        while !incoming.is_done() && used < bytes.len() {
            let end = bytes.len().min(used + piece);
            let taken = incoming
                .take(&bytes[used..end], || place.clone().try_acquire_owned().ok())
                .map_err(|refusal| refusal.status)?;
            used += taken;
        }
        Ok(incoming.is_done().then_some((incoming.body, used)))
    }

    #[test]
    fn a_body_ends_where_it_says() {
        for piece in [1, 2, 3, 100] {
            assert_eq!(read(Sends::Length(3), b"abcGET", piece), Ok(Some((b"abc".to_vec(), 3))));
            assert_eq!(read(Sends::Length(3), b"ab", piece), Ok(None));
            for text in [
                "3\r\nabc\r\n1;x=\"y\"\r\nd\r\n0\r\n\r\n",
                "0000004 \r\nabcd\r\n0;last\r\nX: y\r\nZ: \r\n\r\n",
            ] {
                let all = format!("{text}GET");
                let expected = Ok(Some((b"abcd".to_vec(), text.len())));
                assert_eq!(read(Sends::Chunked, all.as_bytes(), piece), expected, "{text}");
            }
        }
    }

    #[test]
    fn what_is_not_chunked_or_too_long_is_refused() {
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
            assert_eq!(read(Sends::Chunked, text.as_bytes(), 7), Err(status), "{text}");
        }
        assert_eq!(read(Sends::Length(MAX_BODY as u64 + 1), b"", 1), Err(413));
        let most = vec![b'x'; MAX_BODY];
        let expected = Ok(Some((most.clone(), MAX_BODY)));
        assert_eq!(read(Sends::Length(MAX_BODY as u64), &most, 5000), expected);
    }

    #[test]
    fn a_long_body_needs_a_place() {
        let mut incoming = Incoming::new(b"", Sends::Length(2 * SHORT as u64)).unwrap();
        assert_eq!(incoming.take(&[0; SHORT], || None), Ok(SHORT));
        assert_eq!(incoming.take(&[0; SHORT], || None).unwrap_err().status, 503);
    }

    #[test]
    fn any_bytes_are_taken_or_refused() {
        bolero::check!().with_type::<(bool, Vec<u8>, u8)>().for_each(|(chunked, bytes, piece)| {
            let sends = if *chunked { Sends::Chunked } else { Sends::Length(9) };
            let piece = usize::from(*piece).max(1);
            let pieces = read(sends, bytes, piece);
            assert_eq!(pieces, read(sends, bytes, usize::MAX / 2));
            if let Ok(Some((body, used))) = pieces {
                assert!(body.len() <= used && used <= bytes.len());
            }
        });
    }
}
