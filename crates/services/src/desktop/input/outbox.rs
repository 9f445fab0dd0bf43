//! The client's queue of events. While the service keeps up, the queue is empty and every event is
//! sent as it was captured. When the service is behind, adjacent motions in the queue are merged.
//! Keys and buttons are never merged.

use std::collections::VecDeque;

use thiserror::Error;

use super::event::{Event, EventError, MAX_EVENTS};
use super::pressed::Pressed;

/// Maximum number of events in flight: those of a round trip of 250 ms at 1000 a second.
const WINDOW: u64 = 256;
/// Maximum length of the queue, in events after merging.
const MAX_QUEUED: usize = 4096;

/// The queue is full, because the service is too far behind.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the service is too slow: {MAX_QUEUED} events are waiting to be sent")]
pub struct OutboxFull;

/// A queue of events in the order of their capture, with a window of events in flight.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Event>,
    sent: u64,
    done: u64,
    pressed: Pressed,
}

impl Outbox {
    /// Adds an event.
    ///
    /// # Errors
    /// [`OutboxFull`] if the queue is full.
    pub fn push(&mut self, event: Event) -> Result<(), OutboxFull> {
        self.pressed.update(event);
        if let Some(last) = self.queue.back_mut()
            && let Some(merged) = merge(*last, event)
        {
            *last = merged;
            return Ok(());
        }
        if self.queue.len() >= MAX_QUEUED {
            return Err(OutboxFull);
        }
        self.queue.push_back(event);
        Ok(())
    }

    /// Takes the events for one message; none while the window is full.
    pub fn take(&mut self) -> Vec<Event> {
        let in_flight = self.sent - self.done;
        let window = usize::try_from(WINDOW.saturating_sub(in_flight)).unwrap_or(0);
        let count = self.queue.len().min(window).min(MAX_EVENTS);
        self.sent += count as u64;
        self.queue.drain(..count).collect()
    }

    /// Handles a report of the service: it has processed `count` events since the start.
    ///
    /// # Errors
    /// [`EventError::Count`] if `count` is less than before, or more than were sent.
    pub fn done(&mut self, count: u64) -> Result<(), EventError> {
        if !(self.done..=self.sent).contains(&count) {
            return Err(EventError::Count);
        }
        self.done = count;
        Ok(())
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a key or a button is pressed.
    pub fn is_held(&self) -> bool {
        self.pressed.any()
    }
}

/// One event with the effect of two adjacent events, if there is one.
fn merge(first: Event, second: Event) -> Option<Event> {
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
    fn events_that_are_sent_at_once_are_not_merged() {
        let mut outbox = Outbox::default();
        for _ in 0..3 {
            outbox.push(RIGHT).unwrap();
            assert_eq!(outbox.take(), [RIGHT]);
        }
    }

    #[test]
    fn queued_motions_are_merged_and_keys_are_not() {
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
    fn limits_events_in_flight_and_in_the_queue() {
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
        assert_eq!(outbox.queue.len(), MAX_QUEUED);
        assert_eq!(outbox.push(RIGHT), Err(OutboxFull));
    }
}
