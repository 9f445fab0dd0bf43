//! Moves of a pointer that is put back to the middle before it reaches an edge of the screen.

use x11rb::connection::SequenceNumber;

use crate::desktop::input::event::Event;

/// Where the pointer is, and where it was put.
pub(super) struct Tracker {
    middle: (i16, i16),
    /// How far from the middle it may get, in pixels.
    reach: i16,
    last: (i16, i16),
    /// It was put to the middle; events from this number on were made after that.
    warped: Option<SequenceNumber>,
}

impl Tracker {
    /// The pointer is at `last`, on a screen with this `middle` whose shorter side has `side` pixels.
    pub(super) fn new(middle: (i16, i16), side: u16, last: (i16, i16)) -> Self {
        let reach = i16::try_from(side / 4).unwrap_or(i16::MAX).max(1);
        Self { middle, reach, last, warped: None }
    }

    /// The pointer is now at `at`: by how much it was moved by hand.
    pub(super) fn moved(&mut self, at: (i16, i16), number: SequenceNumber) -> Option<Event> {
        if self.warped.is_some_and(|warped| number >= warped) {
            self.last = self.middle;
            self.warped = None;
        }
        let (dx, dy) = (at.0.saturating_sub(self.last.0), at.1.saturating_sub(self.last.1));
        self.last = at;
        (dx != 0 || dy != 0).then_some(Event::Motion { dx, dy })
    }

    /// Whether it should be put to the middle.
    pub(super) fn is_far(&self) -> bool {
        let off = |at: i16, middle: i16| at.abs_diff(middle) > self.reach.unsigned_abs();
        let far = off(self.last.0, self.middle.0) || off(self.last.1, self.middle.1);
        far && self.warped.is_none()
    }

    /// It was put there by the request of this number.
    pub(super) fn warped(&mut self, number: SequenceNumber) {
        self.warped = Some(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn motion(dx: i16, dy: i16) -> Option<Event> {
        Some(Event::Motion { dx, dy })
    }

    #[test]
    fn what_a_hand_does_is_told_from_what_is_put_back() {
        let mut tracker = Tracker::new((100, 100), 200, (100, 100));
        assert_eq!(tracker.moved((110, 90), 1), motion(10, -10));
        assert!(!tracker.is_far());
        assert_eq!(tracker.moved((160, 90), 1), motion(50, 0));
        assert!(tracker.is_far());
        tracker.warped(7);
        // On its way while the pointer was put back: still counted from where it was.
        assert_eq!(tracker.moved((165, 90), 6), motion(5, 0));
        assert!(!tracker.is_far());
        // The event of being put back itself.
        assert_eq!(tracker.moved((100, 100), 7), None);
        assert_eq!(tracker.moved((101, 100), 7), motion(1, 0));
    }

    #[test]
    fn it_may_begin_anywhere() {
        let mut tracker = Tracker::new((100, 100), 200, (5, 6));
        tracker.warped(3);
        assert_eq!(tracker.moved((6, 6), 2), motion(1, 0));
        assert_eq!(tracker.moved((100, 100), 3), None);
    }

    #[test]
    fn nothing_is_lost_if_the_hand_moves_on_at_once() {
        let mut tracker = Tracker::new((100, 100), 200, (100, 100));
        tracker.moved((180, 100), 1);
        tracker.warped(2);
        // The server told of both as one.
        assert_eq!(tracker.moved((103, 104), 2), motion(3, 4));
    }
}
