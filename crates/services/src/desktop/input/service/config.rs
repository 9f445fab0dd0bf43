//! The options of the type `input`.

use std::path::PathBuf;

use levada_service::definition_options;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::injector_thread::Batch;
use crate::desktop::input::event::Event;
use crate::desktop::screen::{self, ScreenOptions};

/// Default rate, in events a second: twice that of a fast mouse.
const RATE: u32 = 2000;
/// Highest rate that can be configured, in events a second.
const MAX_RATE: u32 = 100_000;

definition_options! {
    /// The options of a definition of type `input`.
    pub(crate) struct Options {
        #[serde(default, deserialize_with = "screen::display")]
        display: Option<String>,
        #[serde(default, deserialize_with = "screen::authority")]
        xauthority: Option<PathBuf>,
        #[serde(default = "yes")]
        keyboard: bool,
        #[serde(default = "yes")]
        pointer: bool,
        #[serde(default = "rate", deserialize_with = "events_per_second")]
        events_per_second: u32,
    }
}

/// The limits of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) keyboard: bool,
    pub(super) pointer: bool,
    /// Events a second.
    pub(super) rate: u32,
}

impl Options {
    /// The options of the screen, and the limits of a client.
    pub(super) fn split(self) -> (ScreenOptions, Limits) {
        let Self { display, xauthority: authority, keyboard, pointer, .. } = self;
        let limits = Limits { keyboard, pointer, rate: self.events_per_second };
        (ScreenOptions { display, authority }, limits)
    }
}

impl Limits {
    /// How many events may arrive at once: those of 250 ms.
    pub(super) fn burst(self) -> u32 {
        (self.rate / 4).max(1)
    }

    /// Removes the events that are not permitted.
    pub(super) fn filter(self, mut events: Vec<Event>) -> Batch {
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let mut note = None;
        events.retain(|event| {
            let refused = self.refuses(*event);
            note = note.or(refused);
            refused.is_none()
        });
        Batch { events, count, note }
    }

    fn refuses(self, event: Event) -> Option<&'static str> {
        match event {
            Event::KeyDown { .. } if !self.keyboard => Some("this service accepts no keys"),
            Event::Motion { .. } | Event::Position { .. } | Event::Button { .. }
                if !self.pointer =>
            {
                Some("this service accepts no pointer events")
            }
            _ => None,
        }
    }
}

fn events_per_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let rate = u32::deserialize(deserializer)?;
    if !(1..=MAX_RATE).contains(&rate) {
        return Err(D::Error::custom(format_args!(
            "events_per_second must be from 1 to {MAX_RATE}"
        )));
    }
    Ok(rate)
}

fn rate() -> u32 {
    RATE
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_events_that_are_not_permitted_and_counts_them() {
        let text = "display = ':0'\nkeyboard = false\nevents_per_second = 8";
        let (_, limits) = toml::from_str::<Options>(text).unwrap().split();
        assert_eq!((limits.rate, limits.burst()), (8, 2));
        let motion = Event::Motion { dx: 1, dy: 1 };
        let batch = limits.filter(vec![
            Event::KeyDown { key: 1, keysym: 97 },
            motion,
            Event::KeyUp { key: 1 },
        ]);
        assert_eq!(batch.events, [motion, Event::KeyUp { key: 1 }]);
        assert_eq!((batch.count, batch.note), (3, Some("this service accepts no keys")));
        let batch = Limits { pointer: false, ..limits }.filter(vec![motion]);
        assert!(batch.events.is_empty() && batch.note.is_some());
    }

    #[test]
    fn rejects_invalid_options() {
        for text in ["events_per_second = 0", "events_per_second = 100001", "mouse = true"] {
            assert!(toml::from_str::<Options>(text).is_err(), "{text}");
        }
    }
}
