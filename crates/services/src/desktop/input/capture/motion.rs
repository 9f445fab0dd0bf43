//! Tracks the motions of a pointer that is moved back to the middle before it reaches an edge of
//! the screen.

use x11rb::connection::SequenceNumber;

use crate::desktop::input::event::Event;

/// Computes relative motions from positions.
pub(super) struct Tracker {
    middle: (i16, i16),
    /// Maximum distance from the middle, in pixels.
    reach: i16,
    last: (i16, i16),
    /// The pointer was moved to the middle. Events from this sequence number on happened after
    /// that.
    warped: Option<SequenceNumber>,
}

impl Tracker {
    /// A tracker for a pointer at `last`, on a screen with this `middle` whose shorter side has
    /// `side` pixels.
    pub(super) fn new(middle: (i16, i16), side: u16, last: (i16, i16)) -> Self {
        let reach = i16::try_from(side / 4).unwrap_or(i16::MAX).max(1);
        Self { middle, reach, last, warped: None }
    }

    /// Handles the position `at` of an event. Returns the motion by the user.
    pub(super) fn moved(&mut self, at: (i16, i16), number: SequenceNumber) -> Option<Event> {
        if self.warped.is_some_and(|warped| number >= warped) {
            self.last = self.middle;
            self.warped = None;
        }
        let dx = at.0.saturating_sub(self.last.0);
        let dy = at.1.saturating_sub(self.last.1);
        self.last = at;
        (dx != 0 || dy != 0).then_some(Event::Motion { dx, dy })
    }

    /// Whether the pointer should be moved to the middle.
    pub(super) fn is_far(&self) -> bool {
        let off = |at: i16, middle: i16| at.abs_diff(middle) > self.reach.unsigned_abs();
        let far = off(self.last.0, self.middle.0) || off(self.last.1, self.middle.1);
        far && self.warped.is_none()
    }

    /// The pointer was moved to the middle by the request of this sequence number.
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
    fn distinguishes_motions_of_the_user_from_moves_to_the_middle() {
        let mut tracker = Tracker::new((100, 100), 200, (100, 100));
        assert_eq!(tracker.moved((110, 90), 1), motion(10, -10));
        assert!(!tracker.is_far());
        assert_eq!(tracker.moved((160, 90), 1), motion(50, 0));
        assert!(tracker.is_far());
        tracker.warped(7);
        // This event happened before the move, and is relative to the earlier position.
        assert_eq!(tracker.moved((165, 90), 6), motion(5, 0));
        assert!(!tracker.is_far());
        // The event of the move itself.
        assert_eq!(tracker.moved((100, 100), 7), None);
        assert_eq!(tracker.moved((101, 100), 7), motion(1, 0));
    }

    #[test]
    fn the_pointer_may_start_anywhere() {
        let mut tracker = Tracker::new((100, 100), 200, (5, 6));
        tracker.warped(3);
        assert_eq!(tracker.moved((6, 6), 2), motion(1, 0));
        assert_eq!(tracker.moved((100, 100), 3), None);
    }

    #[test]
    fn a_motion_merged_with_the_move_is_not_lost() {
        let mut tracker = Tracker::new((100, 100), 200, (100, 100));
        tracker.moved((180, 100), 1);
        tracker.warped(2);
        // The server reported both in one event.
        assert_eq!(tracker.moved((103, 104), 2), motion(3, 4));
    }
}
