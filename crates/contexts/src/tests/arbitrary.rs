//! Arbitrary and altered frames at every stage of a session, on every link.

use std::cell::Cell;
use std::rc::Rc;

use levada_channel::parts::{ALERT, DATA};

use super::chain::{Chain, DIRECTIONS, Parties, data_of, events};
use crate::Right::{Read, Write};
use crate::{Direction, frame};

/// What is changed of one frame.
#[derive(Clone, Debug, bolero::TypeGenerator)]
enum Change {
    Flip(u16, u8),
    Cut(u16),
    Drop,
    Double,
    /// Arbitrary bytes come before it.
    Bytes(Vec<u8>),
    /// A frame with any body comes before it.
    Frame(u8, Vec<u8>),
    /// Its body is replaced.
    Body(Vec<u8>),
    /// Its body is prolonged.
    Longer(u16),
}

impl Change {
    fn apply(&self, mut frame: Vec<u8>) -> Vec<Vec<u8>> {
        let at = |at: u16| usize::from(at) % frame.len();
        match self {
            Self::Flip(byte, bit) => {
                let byte = at(*byte);
                frame[byte] ^= 1 << (bit % 8);
                vec![frame]
            }
            Self::Cut(length) => {
                frame.truncate(at(*length));
                vec![frame]
            }
            Self::Drop => vec![],
            Self::Double => vec![frame.clone(), frame],
            Self::Bytes(bytes) => vec![bytes.clone(), frame],
            Self::Frame(kind, body) => {
                let mut own = Vec::new();
                frame::put(&mut own, 20 + kind % 4, &[body]);
                if kind % 16 < 12 {
                    own.clear();
                    frame::put(&mut own, frame::PATH + kind % 16, &[body]);
                }
                vec![own, frame]
            }
            Self::Body(body) => {
                let mut own = frame[..3].to_vec();
                own.extend_from_slice(&(body.len().min(60_000) as u16).to_be_bytes());
                own.extend_from_slice(body);
                vec![own]
            }
            Self::Longer(by) => {
                let length = frame.len() + usize::from(*by);
                let body = (length - 5).min(usize::from(u16::MAX)) as u16;
                frame.resize(length, 0);
                frame[3..5].copy_from_slice(&body.to_be_bytes());
                vec![frame]
            }
        }
    }
}

/// The bytes of a frame that its receiver on this link does not check: what proves something to
/// others, or to a cache.
fn is_for_others(frame: &[u8], byte: usize, direction: Direction) -> bool {
    let to_client = direction == Direction::ToClient;
    match frame[0] {
        // The start for each middlebox.
        frame::READY => to_client && frame[5] == 0 && byte >= 5 + 17,
        // The endorsement for each middlebox.
        frame::AUDIT => to_client && frame[5..7] == [0, 1] && byte >= frame.len() - 2 * 16,
        _ => false,
    }
}

#[test]
fn an_altered_frame_ends_a_session_or_changes_nothing() {
    let check = bolero::check!().with_type::<(u8, bool, u8, Change)>();
    check.with_iterations(1000).for_each(|(link, direction, number, change)| {
        let parties = Parties::new(&[&[Read, Write], &[Write, Read]]);
        let at = (usize::from(link % 3), DIRECTIONS[usize::from(*direction)]);
        let number = number % 24;
        let mut chain = Chain::new(&parties);
        let mut count = 0;
        let harmless = Rc::new(Cell::new(true));
        let reached = harmless.clone();
        // The frames are borrowed for the time of this session only, so a copy of the change is
        // applied.
        let (change, shown) = (change.clone(), change.clone());
        chain.attack(at, move |frames| {
            let mut all = Vec::new();
            for frame in frames {
                count += 1;
                if count - 1 != number {
                    all.push(frame);
                    continue;
                }
                let other = match change {
                    Change::Flip(byte, bit) => {
                        let byte = usize::from(byte) % frame.len();
                        // An encrypted record has the type DATA, which is not authenticated
                        // (RFC 8446 section 5.2).
                        let is_type =
                            byte == 0 && [frame[0], 1 << (bit % 8)] == [DATA, DATA ^ ALERT];
                        is_type || is_for_others(&frame, byte, at.1)
                    }
                    // A PING is answered.
                    Change::Frame(kind, ref body) => kind % 16 == 11 && body.len() == 9,
                    Change::Bytes(ref bytes) => bytes.is_empty(),
                    Change::Longer(by) => by == 0,
                    _ => false,
                };
                reached.set(other);
                all.extend(change.apply(frame));
            }
            all
        });
        let result = chain.whole_session();
        assert!(result.is_err() || harmless.get(), "{at:?} {number} {shown:?}");
        for end in [&mut chain.client, &mut chain.server] {
            for (_, data, origin, _) in data_of(&events(end)).0 {
                assert!(b"message".starts_with(&data) && origin == 0, "{data:?}");
            }
        }
    });
}
