//! The set of pressed keys and buttons.

use super::event::Event;

/// The pressed keys and buttons, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressed {
    keys: [u128; 2],
    buttons: u32,
}

impl Pressed {
    /// Applies an event to the set.
    pub(crate) fn update(&mut self, event: Event) {
        match event {
            Event::KeyDown { key, .. } => self.keys[half(key)] |= bit(key),
            Event::KeyUp { key } => self.keys[half(key)] &= !bit(key),
            Event::Button { button, down: true } => self.buttons |= 1 << (button % 32),
            Event::Button { button, down: false } => self.buttons &= !(1 << (button % 32)),
            Event::ReleaseAll => *self = Self::default(),
            Event::Motion { .. } | Event::Position { .. } | Event::StillHeld => {}
        }
    }

    /// Whether any key or button is pressed.
    pub(crate) fn any(&self) -> bool {
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
    fn tracks_pressed_keys_and_buttons() {
        let mut pressed = Pressed::default();
        let button = |down| Event::Button { button: 1, down };
        let down = |key| Event::KeyDown { key, keysym: 97 };
        assert!(!pressed.any());
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
            pressed.update(event);
            assert_eq!(pressed.any(), any, "{event:?}");
        }
    }
}
