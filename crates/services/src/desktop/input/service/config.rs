//! The options of the type `input`.

use std::path::PathBuf;

use levada_service::definition_options;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::injector_thread::Batch;
use crate::desktop::input::event::Event;
use crate::desktop::screen::{self, Choice};

/// Events a second, unless the configuration says otherwise: twice what a fast mouse makes.
const RATE: u32 = 2000;
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

/// What a client may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) keyboard: bool,
    pub(super) pointer: bool,
    /// Events a second.
    pub(super) rate: u32,
}

impl Options {
    /// The screen, and what a client may do there.
    pub(super) fn split(self) -> (Choice, Limits) {
        let Self { display, xauthority: authority, keyboard, pointer, .. } = self;
        let limits = Limits { keyboard, pointer, rate: self.events_per_second };
        (Choice { display, authority }, limits)
    }
}

impl Limits {
    /// What may come at once: a quarter of a second's.
    pub(super) fn burst(self) -> u32 {
        (self.rate / 4).max(1)
    }

    /// Takes out what is not permitted.
    pub(super) fn permitted(self, mut events: Vec<Event>) -> Batch {
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
            Event::KeyDown { .. } if !self.keyboard => Some("this service takes no keys"),
            Event::Motion { .. } | Event::Position { .. } | Event::Button { .. }
                if !self.pointer =>
            {
                Some("this service takes nothing of a pointer")
            }
            _ => None,
        }
    }
}

fn events_per_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let rate = u32::deserialize(deserializer)?;
    if !(1..=MAX_RATE).contains(&rate) {
        return Err(D::Error::custom(format_args!("a rate is from 1 to {MAX_RATE} a second")));
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
    fn what_is_not_permitted_is_taken_out_and_counted() {
        let text = "display = ':0'\nkeyboard = false\nevents_per_second = 8";
        let (_, limits) = toml::from_str::<Options>(text).unwrap().split();
        assert_eq!((limits.rate, limits.burst()), (8, 2));
        let motion = Event::Motion { dx: 1, dy: 1 };
        let batch = limits.permitted(vec![
            Event::KeyDown { key: 1, keysym: 97 },
            motion,
            Event::KeyUp { key: 1 },
        ]);
        assert_eq!(batch.events, [motion, Event::KeyUp { key: 1 }]);
        assert_eq!((batch.count, batch.note), (3, Some("this service takes no keys")));
        let batch = Limits { pointer: false, ..limits }.permitted(vec![motion]);
        assert!(batch.events.is_empty() && batch.note.is_some());
    }

    #[test]
    fn wrong_options_are_refused() {
        for text in ["events_per_second = 0", "events_per_second = 100001", "mouse = true"] {
            assert!(toml::from_str::<Options>(text).is_err(), "{text}");
        }
    }
}
