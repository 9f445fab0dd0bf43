//! Frames: the content of a record is a sequence of whole frames.
//!
//! The first byte of a frame is its type in the low 4 bits and flags in the high 4. Numbers are
//! varints (RFC 9000 section 16).

use crate::{Error, varint};

const DATA: u8 = 1;
const WINDOW: u8 = 2;
const RESET: u8 = 3;
const PING: u8 = 4;
const PONG: u8 = 5;
const HELLO: u8 = 6;
const CLOSE: u8 = 7;

/// On DATA: the message ends here.
pub(crate) const END: u8 = 0x10;
/// On DATA: no more messages follow in this direction.
pub(crate) const FIN: u8 = 0x20;
/// On the DATA frame that opens a stream: its class is bulk.
pub(crate) const BULK: u8 = 0x40;

/// The longest text of a CLOSE frame, in bytes.
pub(crate) const MAX_REASON: usize = 256;

/// The longest frame that is neither DATA nor CLOSE.
pub(crate) const MAX_CONTROL: usize = 1 + 8 + 8 + 8;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// Part of a message. The first frame of a stream opens it, and has no bytes and no flag but
    /// [`BULK`].
    Data { stream: u64, flags: u8, bytes: &'a [u8] },
    /// The receiver's limit on the total sent; stream 0 is the connection.
    Window { stream: u64, limit: u64 },
    /// Aborts both directions of a stream.
    Reset { stream: u64, code: u64 },
    /// Requests a PONG with the same bytes.
    Ping([u8; 8]),
    /// Answers a PING.
    Pong([u8; 8]),
    /// The first frame of each side: versions it speaks, and its block length (0 for `auto`).
    Hello { min: u64, max: u64, block: u64 },
    /// The last frame of a connection.
    Close { code: u64, reason: &'a str },
}

/// Appends `data`, less than 2^30 bytes, as one DATA frame.
#[inline]
pub(crate) fn put_data(buffer: &mut Vec<u8>, stream: u64, flags: u8, data: &[u8]) {
    // The head is put together in a register and written at once, because this is a hot path for
    // small messages.
    let (number, number_length) = varint::word(stream);
    let (size, size_length) = varint::word(data.len() as u64);
    let head = u128::from(DATA | flags)
        | u128::from(number) << 8
        | u128::from(size) << (8 + 8 * number_length);
    let head = head.to_le_bytes();
    buffer.reserve(head.len() + data.len());
    let end = buffer.len() + 1 + number_length + size_length;
    buffer.extend_from_slice(&head);
    buffer.truncate(end);
    buffer.extend_from_slice(data);
}

/// How the DATA frames of one stream that each end a message begin.
pub(crate) struct MessageHead {
    /// The first bytes, as a little-endian number, and which of its bits they are.
    word: u64,
    mask: u64,
    length: usize,
}

impl MessageHead {
    /// None if the number of `stream` is so long that the head does not fit in a word.
    pub(crate) fn new(stream: u64) -> Option<Self> {
        let (number, length) = varint::word(stream);
        let length = 1 + length;
        (length <= 8).then(|| Self {
            word: u64::from(DATA | END) | number << 8,
            mask: u64::MAX >> (64 - 8 * length),
            length,
        })
    }

    /// Takes a frame with this head from the front of `rest`, and returns its bytes. None if
    /// another frame is there, or if `rest` is too short to tell at once.
    pub(crate) fn take<'a>(&self, rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Error> {
        // One comparison of words, because this is a hot path for small messages.
        let Some(front) = rest.first_chunk() else { return Ok(None) };
        if (u64::from_le_bytes(*front) ^ self.word) & self.mask != 0 {
            return Ok(None);
        }
        *rest = &rest[self.length..];
        let length = number(rest)?;
        bytes(rest, length).map(Some)
    }
}

impl<'a> Frame<'a> {
    /// Takes one frame from the front of a record's content.
    pub(crate) fn take(rest: &mut &'a [u8]) -> Result<Self, Error> {
        let (&first, tail) = rest.split_first().ok_or(TRUNCATED)?;
        *rest = tail;
        let flags = first & 0xf0;
        let frame = match first & 0x0f {
            DATA if flags & !(END | FIN | BULK) == 0 => {
                let stream = number(rest)?;
                let length = number(rest)?;
                return Ok(Self::Data { stream, flags, bytes: bytes(rest, length)? });
            }
            WINDOW => Self::Window { stream: number(rest)?, limit: number(rest)? },
            RESET => Self::Reset { stream: number(rest)?, code: number(rest)? },
            PING => Self::Ping(eight(rest)?),
            PONG => Self::Pong(eight(rest)?),
            HELLO => Self::Hello { min: number(rest)?, max: number(rest)?, block: number(rest)? },
            CLOSE => {
                let code = number(rest)?;
                let length = number(rest)?;
                if length > MAX_REASON as u64 {
                    return Err(Error::Protocol("a long reason"));
                }
                let reason = std::str::from_utf8(bytes(rest, length)?);
                Self::Close { code, reason: reason.map_err(|_| Error::Protocol("not UTF-8"))? }
            }
            _ => return Err(Error::Protocol("an unknown frame")),
        };
        if flags != 0 { Err(Error::Protocol("an unknown flag")) } else { Ok(frame) }
    }

    /// Appends this frame.
    pub(crate) fn put(&self, buffer: &mut Vec<u8>) {
        let mut control = |kind, numbers: &[u64]| {
            buffer.push(kind);
            numbers.iter().for_each(|&number| varint::put(buffer, number));
        };
        match *self {
            Self::Window { stream, limit } => control(WINDOW, &[stream, limit]),
            Self::Reset { stream, code } => control(RESET, &[stream, code]),
            Self::Hello { min, max, block } => control(HELLO, &[min, max, block]),
            Self::Ping(token) => {
                buffer.push(PING);
                buffer.extend_from_slice(&token);
            }
            Self::Pong(token) => {
                buffer.push(PONG);
                buffer.extend_from_slice(&token);
            }
            Self::Data { stream, flags, bytes } => {
                put_data(buffer, stream, flags, bytes);
            }
            Self::Close { code, reason } => {
                control(CLOSE, &[code, reason.len() as u64]);
                buffer.extend_from_slice(reason.as_bytes());
            }
        }
    }
}

const TRUNCATED: Error = Error::Protocol("a frame that is cut off");

fn number(rest: &mut &[u8]) -> Result<u64, Error> {
    varint::take(rest).ok_or(TRUNCATED)
}

fn bytes<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], Error> {
    let length = usize::try_from(length).map_err(|_| TRUNCATED)?;
    let (bytes, tail) = rest.split_at_checked(length).ok_or(TRUNCATED)?;
    *rest = tail;
    Ok(bytes)
}

fn eight(rest: &mut &[u8]) -> Result<[u8; 8], Error> {
    let (token, tail) = rest.split_first_chunk().ok_or(TRUNCATED)?;
    *rest = tail;
    Ok(*token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_frames_round_trip() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|input| {
            let mut rest = input.as_slice();
            while let Ok(frame) = Frame::take(&mut rest) {
                let mut again = Vec::new();
                frame.put(&mut again);
                assert_eq!(Frame::take(&mut again.as_slice()), Ok(frame));
            }
        });
    }

    #[test]
    fn every_frame_round_trips_and_is_refused_if_truncated() {
        let token = [9; 8];
        for frame in [
            Frame::Data { stream: 5, flags: END | FIN, bytes: b"hello" },
            Frame::Data { stream: 70, flags: BULK, bytes: &[1; 100] },
            Frame::Window { stream: 0, limit: varint::MAX },
            Frame::Reset { stream: 1, code: 7 },
            Frame::Ping(token),
            Frame::Pong(token),
            Frame::Hello { min: 1, max: 1, block: 4096 },
            Frame::Close { code: 3, reason: "wegen Umbaus geschlossen" },
        ] {
            let mut bytes = Vec::new();
            frame.put(&mut bytes);
            let mut rest = bytes.as_slice();
            assert_eq!(Frame::take(&mut rest), Ok(frame));
            assert!(rest.is_empty());
            for cut in 0..bytes.len() {
                assert!(Frame::take(&mut &bytes[..cut]).is_err());
            }
        }
    }

    #[test]
    fn unknown_types_and_flags_are_refused() {
        for first in (0..=255u8).filter(|first| !(1..=7).contains(&(first & 15))) {
            assert!(Frame::take(&mut [&[first][..], &[0; 40]].concat().as_slice()).is_err());
        }
        assert!(Frame::take(&mut &[DATA | 0x80, 1, 0][..]).is_err());
        assert!(Frame::take(&mut &[WINDOW | END, 1, 0][..]).is_err());
        assert!(
            Frame::take(&mut [&[CLOSE, 0, 0x41, 1][..], &[b'x'; 257]].concat().as_slice()).is_err()
        );
    }
}
