//! Keysyms: the numbers of X for the symbols of keys (X Window System Protocol, appendix A).

/// No keysym.
pub const NONE: u32 = 0;
/// Keysyms from here on are Unicode characters.
const UNICODE: u32 = 0x0100_0000;
const EURO: u32 = 0x20ac;

/// Names of keys without a character, as in `keysymdef.h` or as printed on the key.
const NAMES: &[(&str, u32)] = &[
    ("BackSpace", 0xff08),
    ("Tab", 0xff09),
    ("Return", 0xff0d),
    ("Enter", 0xff0d),
    ("Pause", 0xff13),
    ("Scroll_Lock", SCROLL_LOCK),
    ("ScrollLock", SCROLL_LOCK),
    ("Print", 0xff61),
    ("Sys_Req", 0xff15),
    ("Escape", 0xff1b),
    ("Esc", 0xff1b),
    ("Home", 0xff50),
    ("Left", 0xff51),
    ("Up", 0xff52),
    ("Right", 0xff53),
    ("Down", 0xff54),
    ("Page_Up", 0xff55),
    ("PageUp", 0xff55),
    ("Page_Down", 0xff56),
    ("PageDown", 0xff56),
    ("End", 0xff57),
    ("Insert", 0xff63),
    ("Menu", 0xff67),
    ("Break", 0xff6b),
    ("Delete", 0xffff),
    ("Space", 0x20),
    ("KP_Enter", 0xff8d),
    ("Shift", SHIFT_L),
    ("Shift_L", SHIFT_L),
    ("Shift_R", 0xffe2),
    ("Control", 0xffe3),
    ("Ctrl", 0xffe3),
    ("Control_L", 0xffe3),
    ("Control_R", 0xffe4),
    ("Caps_Lock", CAPS_LOCK),
    ("Num_Lock", NUM_LOCK),
    ("Meta", 0xffe7),
    ("Alt", 0xffe9),
    ("Alt_L", 0xffe9),
    ("Alt_R", 0xffea),
    ("Super", 0xffeb),
    ("Super_L", 0xffeb),
    ("Super_R", 0xffec),
    ("AltGr", LEVEL_3),
    ("ISO_Level3_Shift", LEVEL_3),
];
const F1: u32 = 0xffbe;
const FUNCTION_KEYS: u32 = 24;

/// The left Shift key.
pub const SHIFT_L: u32 = 0xffe1;
/// AltGr.
pub const LEVEL_3: u32 = 0xfe03;
/// Num Lock.
pub const NUM_LOCK: u32 = 0xff7f;
const CAPS_LOCK: u32 = 0xffe5;
const SHIFT_LOCK: u32 = 0xffe6;
const SCROLL_LOCK: u32 = 0xff14;
const MODE_SWITCH: u32 = 0xff7e;

/// Parses a keysym: a name such as `Escape` or `F5` in any case, one character, `U+20AC`, or a
/// number such as `0xff1b`.
pub fn parse(name: &str) -> Option<u32> {
    let mut characters = name.chars();
    if let (Some(character), None) = (characters.next(), characters.next()) {
        return of_char(character);
    }
    if let Some((_, keysym)) = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Some(*keysym);
    }
    let prefixed = |prefix: &str| {
        let head = name.get(..prefix.len())?;
        head.eq_ignore_ascii_case(prefix).then(|| &name[prefix.len()..])
    };
    if let Some(digits) = prefixed("U+") {
        return of_char(char::from_u32(hexadecimal(digits)?)?);
    }
    if let Some(digits) = prefixed("0x") {
        return hexadecimal(digits).filter(|keysym| *keysym != NONE);
    }
    let number: u32 = plain_number(prefixed("F")?)?;
    (1..=FUNCTION_KEYS).contains(&number).then(|| F1 + number - 1)
}

/// The keysym of a character. Of the control characters, only newline, carriage return and tab have
/// one.
pub fn of_char(character: char) -> Option<u32> {
    match character {
        '\n' | '\r' => Some(0xff0d),
        '\t' => Some(0xff09),
        character if character.is_control() => None,
        character => Some(canonical(UNICODE + u32::from(character))),
    }
}

/// The keysym that keyboard mappings use, where a character has more than one.
pub fn canonical(keysym: u32) -> u32 {
    match keysym.checked_sub(UNICODE) {
        Some(code @ (0x20..=0x7e | 0xa0..=0xff | EURO)) => code,
        _ => keysym,
    }
}

/// Whether `keysym` is a modifier, which has an effect while it is held.
pub(crate) fn is_modifier(keysym: u32) -> bool {
    matches!(keysym, 0xffe1..=0xffee | 0xfe01..=0xfe05 | 0xfe11..=0xfe13 | MODE_SWITCH)
}

/// Whether `keysym` is a lock. The keysyms of other keys already include its effect.
pub(crate) fn is_lock(keysym: u32) -> bool {
    matches!(keysym, CAPS_LOCK | SHIFT_LOCK | NUM_LOCK | SCROLL_LOCK)
}

/// Whether `keysym` is on the keypad, where Num Lock works as Shift does.
pub(crate) fn is_keypad(keysym: u32) -> bool {
    matches!(keysym, 0xff80..=0xffbd | 0x1100_0000..=0x1100_ffff)
}

/// Whether `keysym` is a character or a dead accent.
pub(crate) fn is_text(keysym: u32) -> bool {
    matches!(keysym, 0x20..=0x7e | 0xa0..=0x20ff | 0xfe50..=0xfe93)
        || to_char(keysym).is_some_and(|character| !character.is_control())
}

/// Whether the second keysym is the capital letter of the first.
pub(crate) fn is_pair(small: u32, capital: u32) -> bool {
    if small == capital || small == NONE || capital == NONE {
        return false;
    }
    if let (Some(small), Some(capital)) = (to_char(small), to_char(capital)) {
        return small.to_uppercase().eq([capital]) || capital.to_lowercase().eq([small]);
    }
    // Keysyms before Unicode: a capital is 1, 16 or 32 away from its small letter.
    match (small >> 8, capital >> 8) {
        (0x06, 0x06) => matches!(capital.wrapping_sub(small), 0x10 | 0x20),
        (0x01..=0x03, 0x01..=0x03) | (0x07, 0x07) | (0x12..=0x13, 0x12..=0x13) => {
            matches!(small.wrapping_sub(capital), 0x01 | 0x10 | 0x20)
        }
        _ => false,
    }
}

/// The capital letter of `keysym` if Unicode defines one; otherwise `keysym`.
pub(crate) fn capital(keysym: u32) -> u32 {
    let Some(character) = to_char(keysym) else { return keysym };
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => of_char(upper).unwrap_or(keysym),
        _ => keysym,
    }
}

fn to_char(keysym: u32) -> Option<char> {
    match keysym {
        0x20..=0x7e | 0xa0..=0xff | EURO => char::from_u32(keysym),
        _ => char::from_u32(keysym.checked_sub(UNICODE)?),
    }
}

fn hexadecimal(digits: &str) -> Option<u32> {
    // `from_str_radix` accepts a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| plain)
}

fn plain_number(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_characters_and_numbers() {
        for (name, keysym) in [
            ("a", 0x61),
            ("A", 0x41),
            ("é", 0xe9),
            ("€", 0x20ac),
            ("ж", 0x0100_0436),
            ("escape", 0xff1b),
            ("ScrollLock", 0xff14),
            ("F1", 0xffbe),
            ("f24", 0xffd5),
            ("F", 0x46),
            ("U+20AC", 0x20ac),
            ("u+0436", 0x0100_0436),
            ("0xff1b", 0xff1b),
        ] {
            assert_eq!(parse(name), Some(keysym), "{name}");
        }
        for name in ["", "F0", "F25", "U+", "U+d800", "0x", "0x0", "U++41", "0x+1", "F+1", "Anykey"]
        {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn arbitrary_names_never_panic() {
        bolero::check!().with_type::<String>().for_each(|name| {
            if let Some(keysym) = parse(name) {
                assert_ne!(keysym, NONE);
            }
        });
    }

    #[test]
    fn recognises_capitals_of_all_alphabets() {
        for (small, capital) in [
            (0x61, 0x41),
            (0xe4, 0xc4),
            (0x1b1, 0x1a1),
            (0x6c1, 0x6e1),
            (0x6a1, 0x6b1),
            (0x7e1, 0x7c1),
            (0x13bd, 0x13bc),
            (0x0100_0436, 0x0100_0416),
        ] {
            assert!(is_pair(small, capital), "{small:x}");
            assert!(!is_pair(capital, small), "{small:x}");
        }
        for (small, other) in [(0x31, 0x21), (0x61, 0x61), (0, 0x41), (0xff8d, 0xff0d)] {
            assert!(!is_pair(small, other), "{small:x}");
        }
        assert_eq!((capital(0x61), capital(0xdf), capital(0x31)), (0x41, 0xdf, 0x31));
    }

    #[test]
    fn distinguishes_characters_from_function_keys() {
        for keysym in [0x61, 0xe9, 0x6c1, 0x20ac, 0x0100_0436, 0xfe51] {
            assert!(is_text(keysym), "{keysym:x}");
        }
        for keysym in [0xff1b, 0xffbe, 0x1008_ff13, 0xffe1, 0, 7] {
            assert!(!is_text(keysym), "{keysym:x}");
        }
    }
}
