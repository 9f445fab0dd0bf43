//! What has gone down and not yet up.

use super::event::Event;

/// A bit for each key, and for each button.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    keys: [u128; 2],
    buttons: u32,
}

impl Held {
    /// Takes note of what happens.
    pub(crate) fn note(&mut self, event: Event) {
        match event {
            Event::KeyDown { key, .. } => self.keys[half(key)] |= bit(key),
            Event::KeyUp { key } => self.keys[half(key)] &= !bit(key),
            Event::Button { button, down: true } => self.buttons |= 1 << (button % 32),
            Event::Button { button, down: false } => self.buttons &= !(1 << (button % 32)),
            Event::ReleaseAll => *self = Self::default(),
            Event::Motion { .. } | Event::Position { .. } | Event::StillHeld => {}
        }
    }

    /// Whether a key or a button is down.
    pub(crate) fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

fn half(key: u8) -> usize {
    usize::from(key / 128)
}

fn bit(key: u8) -> u128 {
    1 << (key % 128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_down_is_known() {
        let mut held = Held::default();
        let button = |down| Event::Button { button: 1, down };
        let down = |key| Event::KeyDown { key, keysym: 97 };
        assert!(!held.is_any());
        for (event, any) in [
            (down(200), true),
            (button(true), true),
            (Event::KeyUp { key: 200 }, true),
            (button(false), false),
            (Event::KeyUp { key: 7 }, false),
            (down(0), true),
            (Event::StillHeld, true),
            (Event::ReleaseAll, false),
        ] {
            held.note(event);
            assert_eq!(held.is_any(), any, "{event:?}");
        }
    }
}
