//! Events and their encoding. A message to the service is a version byte and events of eight bytes
//! each; a message to the client is the number of processed events.

use thiserror::Error;

/// The version of the encoding, the first byte of each message to the service.
pub const VERSION: u8 = 1;
/// The length of an event, in bytes.
pub const LENGTH: usize = 8;
/// Maximum number of events in a message.
pub const MAX_EVENTS: usize = 256;
/// The highest number of a button. 1 to 3 are left, middle and right; 4 to 7 are the wheel.
pub const MAX_BUTTON: u8 = 31;

const MOTION: u8 = 1;
const POSITION: u8 = 2;
const BUTTON_DOWN: u8 = 3;
const BUTTON_UP: u8 = 4;
const KEY_DOWN: u8 = 5;
const KEY_UP: u8 = 6;
const RELEASE_ALL: u8 = 7;
const STILL_HELD: u8 = 8;

/// A keyboard or pointer event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The pointer moves by a distance in pixels; right and down are positive.
    Motion {
        /// To the right.
        dx: i16,
        /// Down.
        dy: i16,
    },
    /// The pointer moves to a position in pixels from the upper left corner of the screen.
    Position {
        /// From the left.
        x: u16,
        /// From the top.
        y: u16,
    },
    /// A button goes down or up; 1 to [`MAX_BUTTON`], numbered as in X.
    Button {
        /// Its number.
        button: u8,
        /// True if it goes down.
        down: bool,
    },
    /// A key goes down.
    KeyDown {
        /// Any number that identifies the key until its [`Event::KeyUp`].
        key: u8,
        /// The keysym of X that the key has with the current modifiers.
        keysym: u32,
    },
    /// A key goes up.
    KeyUp {
        /// The number of its [`Event::KeyDown`].
        key: u8,
    },
    /// All pressed keys and buttons go up.
    ReleaseAll,
    /// A keepalive while a key or button is pressed. Without it the service releases everything.
    StillHeld,
}

/// Why a message is invalid.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum EventError {
    /// The version is not supported.
    #[error("events of the unsupported version {0}")]
    Version(u8),
    /// No events or more than [`MAX_EVENTS`], or an impossible number of processed events.
    #[error("an invalid number of events")]
    Count,
    /// An event is malformed.
    #[error("a malformed event")]
    Malformed,
}

impl Event {
    fn to_bytes(self) -> [u8; LENGTH] {
        let pair = |kind: u8, [a, b]: [u8; 2], [c, d]: [u8; 2]| [kind, 0, a, b, c, d, 0, 0];
        match self {
            Self::Motion { dx, dy } => pair(MOTION, dx.to_be_bytes(), dy.to_be_bytes()),
            Self::Position { x, y } => pair(POSITION, x.to_be_bytes(), y.to_be_bytes()),
            Self::Button { button, down } => {
                [if down { BUTTON_DOWN } else { BUTTON_UP }, button, 0, 0, 0, 0, 0, 0]
            }
            Self::KeyDown { key, keysym } => {
                let [a, b, c, d] = keysym.to_be_bytes();
                [KEY_DOWN, key, 0, 0, a, b, c, d]
            }
            Self::KeyUp { key } => [KEY_UP, key, 0, 0, 0, 0, 0, 0],
            Self::ReleaseAll => [RELEASE_ALL, 0, 0, 0, 0, 0, 0, 0],
            Self::StillHeld => [STILL_HELD, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    fn from_bytes(bytes: [u8; LENGTH]) -> Option<Self> {
        Some(match bytes {
            [MOTION, 0, a, b, c, d, 0, 0] => {
                Self::Motion { dx: i16::from_be_bytes([a, b]), dy: i16::from_be_bytes([c, d]) }
            }
            [POSITION, 0, a, b, c, d, 0, 0] => {
                Self::Position { x: u16::from_be_bytes([a, b]), y: u16::from_be_bytes([c, d]) }
            }
            [BUTTON_DOWN, button @ 1..=MAX_BUTTON, 0, 0, 0, 0, 0, 0] => {
                Self::Button { button, down: true }
            }
            [BUTTON_UP, button @ 1..=MAX_BUTTON, 0, 0, 0, 0, 0, 0] => {
                Self::Button { button, down: false }
            }
            [KEY_DOWN, key, 0, 0, a, b, c, d] => {
                Self::KeyDown { key, keysym: u32::from_be_bytes([a, b, c, d]) }
            }
            [KEY_UP, key, 0, 0, 0, 0, 0, 0] => Self::KeyUp { key },
            [RELEASE_ALL, 0, 0, 0, 0, 0, 0, 0] => Self::ReleaseAll,
            [STILL_HELD, 0, 0, 0, 0, 0, 0, 0] => Self::StillHeld,
            _ => return None,
        })
    }
}

/// The payload of a message to the service, with at most [`MAX_EVENTS`] events.
pub fn encode(events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + events.len() * LENGTH);
    bytes.push(VERSION);
    bytes.extend(events.iter().flat_map(|event| event.to_bytes()));
    bytes
}

/// Decodes the payload of [`encode`]. No two payloads decode to the same events.
///
/// # Errors
/// [`EventError`] for the first error.
pub fn decode(bytes: &[u8]) -> Result<Vec<Event>, EventError> {
    let (&version, rest) = bytes.split_first().ok_or(EventError::Count)?;
    if version != VERSION {
        return Err(EventError::Version(version));
    }
    let (events, rest) = rest.as_chunks::<LENGTH>();
    if !rest.is_empty() {
        return Err(EventError::Malformed);
    }
    if events.is_empty() || events.len() > MAX_EVENTS {
        return Err(EventError::Count);
    }
    events.iter().map(|event| Event::from_bytes(*event).ok_or(EventError::Malformed)).collect()
}

/// The payload of a message to the client: how many events have been processed since the start.
pub fn encode_count(count: u64) -> [u8; 8] {
    count.to_be_bytes()
}

/// Decodes the payload of [`encode_count`].
///
/// # Errors
/// [`EventError::Malformed`] if it does not have 8 bytes.
pub fn decode_count(bytes: &[u8]) -> Result<u64, EventError> {
    Ok(u64::from_be_bytes(bytes.try_into().map_err(|_| EventError::Malformed)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_injective_and_never_panics() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(events) = decode(bytes) {
                assert_eq!(&encode(&events), bytes);
            }
            if let Ok(count) = decode_count(bytes) {
                assert_eq!(&encode_count(count).to_vec(), bytes);
            }
        });
    }

    #[test]
    fn every_event_round_trips() {
        let events = [
            Event::Motion { dx: -1, dy: i16::MAX },
            Event::Position { x: 1919, y: 0 },
            Event::Button { button: 1, down: true },
            Event::Button { button: MAX_BUTTON, down: false },
            Event::KeyDown { key: 38, keysym: 0x0100_20ac },
            Event::KeyUp { key: 255 },
            Event::ReleaseAll,
            Event::StillHeld,
        ];
        assert_eq!(decode(&encode(&events)).unwrap(), events);
        assert_eq!(encode(&events).len(), 1 + LENGTH * events.len());
    }

    /// docs/protocol.md specifies these bytes.
    #[test]
    fn the_encoding_matches_the_documentation() {
        let bytes = encode(&[
            Event::Motion { dx: 1, dy: -2 },
            Event::KeyDown { key: 0x26, keysym: 0x61 },
            Event::Button { button: 3, down: true },
        ]);
        let expected = [
            &[1][..],
            &[1, 0, 0, 1, 0xff, 0xfe, 0, 0],
            &[5, 0x26, 0, 0, 0, 0, 0, 0x61],
            &[3, 3, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn rejects_malformed_messages() {
        let event = |bytes: [u8; 8]| decode(&[&[VERSION][..], &bytes].concat());
        assert_eq!(decode(&[]), Err(EventError::Count));
        assert_eq!(decode(&[VERSION]), Err(EventError::Count));
        assert_eq!(decode(&[2]), Err(EventError::Version(2)));
        assert_eq!(decode(&[VERSION, 1]), Err(EventError::Malformed));
        for bytes in [
            [0, 0, 0, 0, 0, 0, 0, 0],
            [9, 0, 0, 0, 0, 0, 0, 0],
            [MOTION, 1, 0, 0, 0, 0, 0, 0],
            [MOTION, 0, 0, 0, 0, 0, 0, 1],
            [BUTTON_DOWN, 0, 0, 0, 0, 0, 0, 0],
            [BUTTON_DOWN, 32, 0, 0, 0, 0, 0, 0],
            [KEY_UP, 1, 0, 0, 0, 0, 0, 1],
            [STILL_HELD, 0, 0, 0, 0, 0, 1, 0],
        ] {
            assert_eq!(event(bytes), Err(EventError::Malformed), "{bytes:?}");
        }
        let many = vec![Event::ReleaseAll; MAX_EVENTS + 1];
        assert_eq!(decode(&encode(&many)), Err(EventError::Count));
        assert!(decode(&encode(&many[1..])).is_ok());
    }
}
