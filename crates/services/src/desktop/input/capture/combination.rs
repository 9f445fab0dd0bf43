//! The keys that let go.

use std::fmt;
use std::str::FromStr;

use crate::desktop::input::keysym::named;

const SHIFT: u16 = 1 << 0;
const CONTROL: u16 = 1 << 2;
/// Where almost every X server has them.
const ALT: u16 = 1 << 3;
const SUPER: u16 = 1 << 6;

/// What modifiers are called; the first name is the one that is shown.
const MODIFIERS: [(&str, u16); 6] = [
    ("Ctrl", CONTROL),
    ("Alt", ALT),
    ("Shift", SHIFT),
    ("Super", SUPER),
    ("Control", CONTROL),
    ("Meta", SUPER),
];

/// A key, and the modifiers that are down while it is pressed: `Ctrl+Alt+Escape`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    modifiers: u16,
    key: String,
    keysym: u32,
}

impl Combination {
    /// Whether this is it: what is written on the key that went down, and what was down before.
    pub(super) fn is_pressed(&self, label: Option<u32>, state: u16) -> bool {
        label == Some(self.keysym) && state & self.modifiers == self.modifiers
    }
}

impl Default for Combination {
    /// A key that hardly any program wants, on every keyboard.
    fn default() -> Self {
        Self { modifiers: CONTROL | ALT, key: "Escape".into(), keysym: 0xff1b }
    }
}

impl FromStr for Combination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut modifiers = 0;
        let mut rest = text;
        // The key itself may be `+`.
        while let Some((name, after)) = rest.split_once('+').filter(|(_, after)| !after.is_empty())
        {
            let known = MODIFIERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            let (_, mask) = known.ok_or_else(|| {
                format!("`{name}` is no modifier; they are Ctrl, Alt, Shift and Super")
            })?;
            modifiers |= mask;
            rest = after;
        }
        // What is written on a letter's key is the small one.
        let label = rest.to_lowercase();
        let keysym = if rest.chars().count() == 1 { named(&label) } else { named(rest) };
        let keysym = keysym.ok_or_else(|| {
            format!("`{rest}` is no key; write its name, such as Escape, F12 or ScrollLock")
        })?;
        Ok(Self { modifiers, key: rest.to_owned(), keysym })
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, mask) in &MODIFIERS[..4] {
            if self.modifiers & mask != 0 {
                write!(f, "{name}+")?;
            }
        }
        f.write_str(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_written_as_people_write_them() {
        let standard: Combination = "ctrl+alt+Escape".parse().unwrap();
        assert_eq!(standard, Combination::default());
        assert_eq!(standard.to_string(), "Ctrl+Alt+Escape");
        let one: Combination = "ScrollLock".parse().unwrap();
        assert_eq!((one.modifiers, one.keysym), (0, 0xff14));
        let letter: Combination = "Shift+Super+Q".parse().unwrap();
        assert_eq!((letter.modifiers, letter.keysym), (SHIFT | SUPER, 0x71));
        let plus: Combination = "Ctrl++".parse().unwrap();
        assert_eq!((plus.modifiers, plus.keysym), (CONTROL, 0x2b));
        for wrong in ["", "Ctrl+", "Hyperspace+a", "Ctrl+Nokey", "+a"] {
            assert!(wrong.parse::<Combination>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn further_modifiers_do_no_harm_and_missing_ones_do() {
        let keys = Combination::default();
        assert!(keys.is_pressed(Some(0xff1b), CONTROL | ALT));
        assert!(keys.is_pressed(Some(0xff1b), CONTROL | ALT | SHIFT | 1 << 4));
        assert!(!keys.is_pressed(Some(0xff1b), CONTROL));
        assert!(!keys.is_pressed(Some(0x61), CONTROL | ALT));
        assert!(!keys.is_pressed(None, CONTROL | ALT));
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(keys) = text.parse::<Combination>() {
                assert_eq!(keys.to_string().parse::<Combination>().unwrap().keysym, keys.keysym);
            }
        });
    }
}
