//! The key combination that releases a capture.

use std::fmt;
use std::str::FromStr;

use crate::desktop::input::keysym;

const SHIFT: u16 = 1 << 0;
const CONTROL: u16 = 1 << 2;
/// Alt and Super have no fixed bits; almost all X servers use these.
const ALT: u16 = 1 << 3;
const SUPER: u16 = 1 << 6;

/// Names of modifiers. The first four are used for display.
const MODIFIERS: [(&str, u16); 6] = [
    ("Ctrl", CONTROL),
    ("Alt", ALT),
    ("Shift", SHIFT),
    ("Super", SUPER),
    ("Control", CONTROL),
    ("Meta", SUPER),
];

/// A key with modifiers, such as `Ctrl+Alt+Escape`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    modifiers: u16,
    key: String,
    keysym: u32,
}

impl Combination {
    /// Whether the press of a key with this label completes the combination; `state` has the
    /// modifiers before it.
    pub(super) fn is_pressed(&self, label: Option<u32>, state: u16) -> bool {
        label == Some(self.keysym) && state & self.modifiers == self.modifiers
    }
}

impl Default for Combination {
    /// `Ctrl+Alt+Escape`, which every keyboard has and hardly any program uses.
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
                format!("`{name}` is not a modifier: use Ctrl, Alt, Shift or Super")
            })?;
            modifiers |= mask;
            rest = after;
        }
        // The label of a letter key is the small letter.
        let label = rest.to_lowercase();
        let keysym =
            if rest.chars().count() == 1 { keysym::parse(&label) } else { keysym::parse(rest) };
        let keysym = keysym.ok_or_else(|| {
            format!("`{rest}` is not a key: write its name, such as Escape, F12 or ScrollLock")
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
    fn parses_combinations_in_any_case() {
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
    fn ignores_further_modifiers_and_requires_its_own() {
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
