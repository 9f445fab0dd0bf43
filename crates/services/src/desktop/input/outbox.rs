//! What waits to be sent. While the service keeps up nothing waits, and every event leaves as it came;
//! once it is behind, moves of the pointer that still wait become one. Keys and buttons never do.

use std::collections::VecDeque;

use thiserror::Error;

use super::event::{Event, EventError, MAX_EVENTS};
use super::held::Held;

/// How many events may be on their way before others wait: at a thousand a second, what a round trip of
/// a quarter of a second holds.
const WINDOW: u64 = 256;
/// How many events may wait, moves taken together.
const MAX_WAITING: usize = 4096;

/// The service is so far behind that nothing more can wait.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the other side is too far behind: {MAX_WAITING} events wait to be sent")]
pub struct Behind;

/// Events in the order in which they happened.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<Event>,
    sent: u64,
    done: u64,
    held: Held,
}

impl Outbox {
    /// Adds what has just happened.
    ///
    /// # Errors
    /// [`Behind`] if too much waits already.
    pub fn push(&mut self, event: Event) -> Result<(), Behind> {
        self.held.note(event);
        if let Some(last) = self.waiting.back_mut()
            && let Some(both) = together(*last, event)
        {
            *last = both;
            return Ok(());
        }
        if self.waiting.len() >= MAX_WAITING {
            return Err(Behind);
        }
        self.waiting.push_back(event);
        Ok(())
    }

    /// Takes what may be sent now, at most a message; nothing while too much is on its way.
    pub fn take(&mut self) -> Vec<Event> {
        let on_the_way = self.sent - self.done;
        let room = usize::try_from(WINDOW.saturating_sub(on_the_way)).unwrap_or(0);
        let count = self.waiting.len().min(room).min(MAX_EVENTS);
        self.sent += count as u64;
        self.waiting.drain(..count).collect()
    }

    /// The service has put in so many since the start.
    ///
    /// # Errors
    /// [`EventError::Count`] if that is less than before, or more than were sent.
    pub fn done(&mut self, count: u64) -> Result<(), EventError> {
        if !(self.done..=self.sent).contains(&count) {
            return Err(EventError::Count);
        }
        self.done = count;
        Ok(())
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a key or a button is down.
    pub fn is_held(&self) -> bool {
        self.held.is_any()
    }
}

/// One event for two that follow each other, if there is one with the same effect.
fn together(first: Event, second: Event) -> Option<Event> {
    match (first, second) {
        (Event::Motion { dx, dy }, Event::Motion { dx: more_x, dy: more_y }) => {
            Some(Event::Motion { dx: dx.checked_add(more_x)?, dy: dy.checked_add(more_y)? })
        }
        (Event::Position { .. }, Event::Position { .. }) => Some(second),
        (Event::StillHeld, Event::StillHeld) => Some(second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Event = Event::Motion { dx: 1, dy: 0 };

    fn key(key: u8) -> Event {
        Event::KeyDown { key, keysym: 97 }
    }

    #[test]
    fn what_is_sent_at_once_stays_as_it_was() {
        let mut outbox = Outbox::default();
        for _ in 0..3 {
            outbox.push(RIGHT).unwrap();
            assert_eq!(outbox.take(), [RIGHT]);
        }
    }

    #[test]
    fn moves_become_one_while_they_wait_and_keys_never_do() {
        let mut outbox = Outbox::default();
        let wheel = Event::Button { button: 4, down: true };
        for event in [RIGHT, RIGHT, key(1), RIGHT, RIGHT, RIGHT, wheel, wheel, key(1), key(1)] {
            outbox.push(event).unwrap();
        }
        let two = Event::Motion { dx: 2, dy: 0 };
        let three = Event::Motion { dx: 3, dy: 0 };
        assert_eq!(outbox.take(), [two, key(1), three, wheel, wheel, key(1), key(1)]);
        let far = Event::Motion { dx: i16::MAX, dy: 0 };
        outbox.push(far).unwrap();
        outbox.push(RIGHT).unwrap();
        assert_eq!(outbox.take(), [far, RIGHT]);
    }

    #[test]
    fn only_so_much_is_on_its_way_or_waits() {
        let mut outbox = Outbox::default();
        for at in 0..WINDOW + 10 {
            outbox.push(key(at.to_le_bytes()[0])).unwrap();
        }
        assert_eq!(outbox.take().len() as u64, WINDOW);
        assert!(outbox.take().is_empty() && !outbox.is_empty());
        assert_eq!(outbox.done(4), Ok(()));
        assert_eq!(outbox.take().len(), 4);
        assert_eq!(outbox.done(3), Err(EventError::Count));
        assert_eq!(outbox.done(WINDOW + 5), Err(EventError::Count));
        while outbox.push(key(0)).is_ok() {}
        assert_eq!(outbox.waiting.len(), MAX_WAITING);
        assert_eq!(outbox.push(RIGHT), Err(Behind));
    }
}
