//! What travels: a version byte, then events of eight bytes each. And back: how many have been put in.

use thiserror::Error;

/// The version of the encoding, the first byte of each message to the service.
pub const VERSION: u8 = 1;
/// The length of an event, in bytes.
pub const LENGTH: usize = 8;
/// How many events one message has at most.
pub const MAX_EVENTS: usize = 256;
/// The highest number of a button. 1 to 3 are left, middle and right, 4 to 7 turn the wheel.
pub const MAX_BUTTON: u8 = 31;

const MOTION: u8 = 1;
const POSITION: u8 = 2;
const BUTTON_DOWN: u8 = 3;
const BUTTON_UP: u8 = 4;
const KEY_DOWN: u8 = 5;
const KEY_UP: u8 = 6;
const RELEASE_ALL: u8 = 7;
const STILL_HELD: u8 = 8;

/// One thing that a hand does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The pointer moves by so many pixels: right and down are positive.
    Motion {
        /// To the right.
        dx: i16,
        /// Down.
        dy: i16,
    },
    /// The pointer moves to this pixel, counted from the screen's left upper corner.
    Position {
        /// From the left.
        x: u16,
        /// From above.
        y: u16,
    },
    /// A button goes down or up; 1 to [`MAX_BUTTON`], numbered as in X.
    Button {
        /// Which.
        button: u8,
        /// Down, not up.
        down: bool,
    },
    /// A key goes down.
    KeyDown {
        /// Which: any number that its [`Event::KeyUp`] will have too.
        key: u8,
        /// What it stands for at this moment, with all modifiers applied: a keysym of X.
        keysym: u32,
    },
    /// A key goes up.
    KeyUp {
        /// Which.
        key: u8,
    },
    /// Whatever is down goes up.
    ReleaseAll,
    /// What is down still is: without a sign of life it would be let go.
    StillHeld,
}

/// Why bytes are no events.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum EventError {
    /// A version that is not spoken here.
    #[error("events of version {0}")]
    Version(u8),
    /// More than [`MAX_EVENTS`], or none.
    #[error("a message with no events, or too many")]
    Count,
    /// No event has this form.
    #[error("a malformed event")]
    Malformed,
}

impl Event {
    fn bytes(self) -> [u8; LENGTH] {
        let two = |kind: u8, [a, b]: [u8; 2], [c, d]: [u8; 2]| [kind, 0, a, b, c, d, 0, 0];
        match self {
            Self::Motion { dx, dy } => two(MOTION, dx.to_be_bytes(), dy.to_be_bytes()),
            Self::Position { x, y } => two(POSITION, x.to_be_bytes(), y.to_be_bytes()),
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

    fn of(bytes: [u8; LENGTH]) -> Option<Self> {
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

/// The payload of one message to the service; at most [`MAX_EVENTS`] events.
pub fn encode(events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + events.len() * LENGTH);
    bytes.push(VERSION);
    bytes.extend(events.iter().flat_map(|event| event.bytes()));
    bytes
}

/// Reads what [`encode`] wrote, and nothing else.
///
/// # Errors
/// [`EventError`] for the first thing that is wrong.
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
    events.iter().map(|event| Event::of(*event).ok_or(EventError::Malformed)).collect()
}

/// The payload of a message to the client: how many events have been put in since the start.
pub fn encode_count(count: u64) -> [u8; 8] {
    count.to_be_bytes()
}

/// Reads what [`encode_count`] wrote.
///
/// # Errors
/// [`EventError::Malformed`] if it is anything else.
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

    /// The bytes that docs/protocol.md promises.
    #[test]
    fn the_encoding_is_as_documented() {
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
    fn anything_else_is_refused() {
        let event = |bytes: [u8; 8]| decode(&[&[VERSION][..], &bytes].concat());
        assert_eq!(decode(&[]), Err(EventError::Count));
        assert_eq!(decode(&[VERSION]), Err(EventError::Count));
        assert_eq!(decode(&[2]), Err(EventError::Version(2)));
        assert_eq!(decode(&[VERSION, 1]), Err(EventError::Malformed));
        for wrong in [
            [0, 0, 0, 0, 0, 0, 0, 0],
            [9, 0, 0, 0, 0, 0, 0, 0],
            [MOTION, 1, 0, 0, 0, 0, 0, 0],
            [MOTION, 0, 0, 0, 0, 0, 0, 1],
            [BUTTON_DOWN, 0, 0, 0, 0, 0, 0, 0],
            [BUTTON_DOWN, 32, 0, 0, 0, 0, 0, 0],
            [KEY_UP, 1, 0, 0, 0, 0, 0, 1],
            [STILL_HELD, 0, 0, 0, 0, 0, 1, 0],
        ] {
            assert_eq!(event(wrong), Err(EventError::Malformed), "{wrong:?}");
        }
        let many = vec![Event::ReleaseAll; MAX_EVENTS + 1];
        assert_eq!(decode(&encode(&many)), Err(EventError::Count));
        assert!(decode(&encode(&many[1..])).is_ok());
    }
}
