//! The mapping of a keyboard from keys and modifiers to keysyms.
//!
//! Each key has a row of keysyms (X Window System Protocol, chapter "Keyboards"). Servers with the
//! XKB extension fill its columns in this order: first group, second group, and then both again for
//! AltGr.

use super::keysym::{LEVEL_3, NONE, NUM_LOCK, canonical, capital, is_keypad, is_pair};

/// Bits of the state of keyboard and buttons.
pub(crate) const SHIFT: u16 = 1 << 0;
pub(crate) const LOCK: u16 = 1 << 1;
/// The group is in two bits of the state (The X Keyboard Extension: Protocol Specification, 2.2.2).
const GROUP_SHIFT: u16 = 13;
/// Number of groups that have columns.
const GROUPS: usize = 2;
const MODIFIERS: usize = 8;

/// The mapping of a keyboard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keymap {
    first: u8,
    columns: usize,
    keysyms: Vec<u32>,
    /// The keys of each modifier, indexed by its bit.
    modifiers: [Vec<u8>; MODIFIERS],
}

/// A key and the modifiers with which it has a keysym.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPosition {
    pub(crate) keycode: u8,
    /// Whether Shift must be pressed; `None` if it has no effect.
    pub(crate) shift: Option<bool>,
    /// The same for AltGr.
    pub(crate) level_3: Option<bool>,
}

impl Keymap {
    /// `keysyms` has `columns` for each key from `first` on. `modifiers` has the same number of
    /// keys for each of the eight modifiers; 0 is no key.
    pub(crate) fn new(first: u8, columns: u8, keysyms: Vec<u32>, modifiers: &[u8]) -> Self {
        let mut keymap = Self { first, columns: columns.into(), keysyms, ..Self::default() };
        let each = modifiers.len() / MODIFIERS;
        if each > 0 {
            for (keys, own) in keymap.modifiers.iter_mut().zip(modifiers.chunks(each)) {
                keys.extend(own.iter().copied().filter(|key| *key != 0));
            }
        }
        keymap
    }

    /// The keysym of the key with `state`.
    pub(crate) fn keysym(&self, keycode: u8, state: u16) -> Option<u32> {
        let group = self.group(keycode, state);
        let level_3 = state & self.mask(LEVEL_3) != 0;
        let [low, high] = self.pair(keycode, group, level_3)?;
        let shifted = (state & SHIFT != 0) != self.locked(low, high, state);
        Some(canonical(if shifted { high } else { low })).filter(|keysym| *keysym != NONE)
    }

    /// The keysym of the key without modifiers, which is printed on it.
    pub(crate) fn label(&self, keycode: u8) -> Option<u32> {
        self.keysym(keycode, 0)
    }

    /// The keys that have `keysym` with `state`, whose Shift and AltGr are ignored: each position
    /// states them.
    pub(crate) fn positions(&self, keysym: u32, state: u16) -> Vec<KeyPosition> {
        let keysym = canonical(keysym);
        let mut positions = Vec::new();
        let keycodes = self.keycodes().filter(|_| keysym != NONE);
        for keycode in keycodes {
            let group = self.group(keycode, state);
            for level_3 in [false, true] {
                let Some([low, high]) = self.pair(keycode, group, level_3) else { continue };
                let other = self.pair(keycode, group, !level_3);
                // If AltGr has no effect, the first iteration has added the key.
                let wanted_level_3 = (other != Some([low, high])).then_some(level_3);
                if level_3 && wanted_level_3.is_none() {
                    continue;
                }
                let locked = self.locked(low, high, state);
                let [low, high] = [canonical(low), canonical(high)];
                if low == keysym {
                    let shift = (low != high).then_some(locked);
                    positions.push(KeyPosition { keycode, shift, level_3: wanted_level_3 });
                } else if high == keysym {
                    let shift = Some(!locked);
                    positions.push(KeyPosition { keycode, shift, level_3: wanted_level_3 });
                }
            }
        }
        positions
    }

    /// Keys without a keysym.
    pub(crate) fn spare(&self) -> Vec<u8> {
        self.keycodes().filter(|key| self.row(*key).iter().all(|keysym| *keysym == NONE)).collect()
    }

    /// The bit of the modifier that a key with `keysym` has; 0 if there is none.
    pub(crate) fn mask(&self, keysym: u32) -> u16 {
        let has = |keys: &Vec<u8>| keys.iter().any(|key| self.row(*key).contains(&keysym));
        self.modifiers.iter().position(has).map_or(0, |bit| 1 << bit)
    }

    /// Whether the key belongs to one of the modifiers in `mask`.
    pub(crate) fn modifies(&self, keycode: u8, mask: u16) -> bool {
        let mut modifiers = self.modifiers.iter().enumerate();
        modifiers.any(|(bit, keys)| mask & (1 << bit) != 0 && keys.contains(&keycode))
    }

    /// Whether an active lock has the effect of Shift.
    fn locked(&self, low: u32, high: u32, state: u16) -> bool {
        (state & LOCK != 0 && is_pair(low, high))
            || (state & self.mask(NUM_LOCK) != 0 && is_keypad(high))
    }

    /// The keysyms without and with Shift; those for AltGr if `level_3` and the key has any.
    fn pair(&self, keycode: u8, group: usize, level_3: bool) -> Option<[u32; 2]> {
        let row = self.row(keycode);
        let at = |column: usize| row.get(column).copied().unwrap_or(NONE);
        let third = [at(2 * (GROUPS + group)), at(2 * (GROUPS + group) + 1)];
        let plain = [at(2 * group), at(2 * group + 1)];
        let [low, high] = if level_3 && third[0] != NONE { third } else { plain };
        match (low, high) {
            (NONE, NONE) => None,
            (NONE, high) => Some([NONE, high]),
            (low, NONE) => Some([low, capital(low)]),
            both => Some(both.into()),
        }
    }

    /// The group of the state; the first for keys that have only one.
    fn group(&self, keycode: u8, state: u16) -> usize {
        let group = usize::from(state >> GROUP_SHIFT & 3);
        let filled = |group: usize| {
            let mut columns = self.row(keycode).iter().skip(2 * group).take(2);
            columns.any(|keysym| *keysym != NONE)
        };
        if group < GROUPS && filled(group) { group } else { 0 }
    }

    fn row(&self, keycode: u8) -> &[u32] {
        let Some(index) = keycode.checked_sub(self.first) else { return &[] };
        let start = usize::from(index) * self.columns;
        self.keysyms.get(start..start + self.columns).unwrap_or_default()
    }

    fn keycodes(&self) -> impl Iterator<Item = u8> + use<> {
        let count = self.keysyms.len().checked_div(self.columns).unwrap_or(0);
        let first = self.first;
        (0..count).filter_map(move |index| first.checked_add(u8::try_from(index).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desktop::input::keysym::{SHIFT_L, parse};

    const CAPS: u32 = 0xffe5;

    /// A small keyboard: German letters and AltGr, a keypad, a second group, and two spare keys.
    fn german() -> Keymap {
        let rows: [[u32; 6]; 11] = [
            [SHIFT_L, 0, 0, 0, 0, 0],                // 8
            [CAPS, 0, 0, 0, 0, 0],                   // 9
            [LEVEL_3, 0, 0, 0, 0, 0],                // 10
            [NUM_LOCK, 0, 0, 0, 0, 0],               // 11
            [0x71, 0x51, 0x6ca, 0x6ea, 0x40, 0x7d9], // 12: q Q, Cyrillic, @
            [0x37, 0x2f, 0x37, 0x2f, 0x7b, 0xb0],    // 13: 7 / {
            [0xff9c, 0xffb1, 0, 0, 0, 0],            // 14: KP_End KP_1
            [0x0100_0061, 0, 0, 0, 0, 0],            // 15: a, no capital
            [0; 6],                                  // 16
            [0xff1b, 0, 0, 0, 0, 0],                 // 17: Escape
            [0; 6],                                  // 18
        ];
        let modifiers = [8, 0, 9, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 10, 0];
        Keymap::new(8, 6, rows.concat(), &modifiers)
    }

    const NUM: u16 = 1 << 4;
    const ALT_GR: u16 = 1 << 7;
    const SECOND: u16 = 1 << GROUP_SHIFT;

    #[test]
    fn the_keysym_of_a_key_depends_on_the_modifiers() {
        let keymap = german();
        for (keycode, state, keysym) in [
            (12, 0, 0x71),
            (12, SHIFT, 0x51),
            (12, LOCK, 0x51),
            (12, LOCK | SHIFT, 0x71),
            (12, ALT_GR, 0x40),
            (12, SECOND, 0x6ca),
            (12, SECOND | SHIFT, 0x6ea),
            (13, LOCK, 0x37),
            (13, SHIFT, 0x2f),
            (14, 0, 0xff9c),
            (14, NUM, 0xffb1),
            (14, NUM | SHIFT, 0xff9c),
            (15, 0, 0x61),
            (15, SHIFT, 0x41),
            (17, SHIFT | ALT_GR | SECOND, 0xff1b),
        ] {
            assert_eq!(keymap.keysym(keycode, state), Some(keysym), "{keycode} {state:x}");
        }
        assert_eq!(keymap.keysym(16, 0), None);
        assert_eq!(keymap.keysym(7, 0), None);
        assert_eq!(keymap.keysym(200, 0), None);
    }

    #[test]
    fn positions_state_the_modifiers_that_a_keysym_needs() {
        let keymap = german();
        let positions = |name: &str, state| keymap.positions(parse(name).unwrap(), state);
        let at = |keycode, shift, level_3| vec![KeyPosition { keycode, shift, level_3 }];
        assert_eq!(positions("q", 0), at(12, Some(false), Some(false)));
        assert_eq!(positions("Q", 0), at(12, Some(true), Some(false)));
        assert_eq!(positions("Q", LOCK), at(12, Some(false), Some(false)));
        assert_eq!(positions("@", 0), at(12, Some(false), Some(true)));
        assert_eq!(positions("/", LOCK), at(13, Some(true), Some(false)));
        assert_eq!(positions("0xffb1", NUM), at(14, Some(false), None));
        assert_eq!(positions("0xffb1", 0), at(14, Some(true), None));
        assert_eq!(positions("Escape", SECOND), at(17, None, None));
        assert_eq!(positions("A", 0), at(15, Some(true), None));
        assert_eq!(positions("é", 0), []);
    }

    /// [`Keymap::positions`] is the inverse of [`Keymap::keysym`].
    #[test]
    fn both_directions_agree() {
        let keymap = german();
        for keycode in 8..=18 {
            for state in [0, SHIFT, LOCK, NUM, ALT_GR, SECOND, SHIFT | LOCK, NUM | SHIFT] {
                let Some(keysym) = keymap.keysym(keycode, state) else { continue };
                let matches = |position: &KeyPosition| {
                    position.keycode == keycode
                        && position.shift.is_none_or(|shift| shift == (state & SHIFT != 0))
                        && position.level_3.is_none_or(|level_3| level_3 == (state & ALT_GR != 0))
                };
                let positions = keymap.positions(keysym, state);
                assert!(positions.iter().any(matches), "{keycode} {state:x}: {positions:?}");
            }
        }
    }

    #[test]
    fn finds_spare_keys_and_modifiers() {
        let keymap = german();
        assert_eq!(keymap.spare(), [16, 18]);
        assert_eq!((keymap.mask(NUM_LOCK), keymap.mask(LEVEL_3)), (NUM, ALT_GR));
        assert_eq!(keymap.mask(0x61), 0);
        assert!(keymap.modifies(8, SHIFT) && !keymap.modifies(8, LOCK));
        assert_eq!(keymap.label(12), Some(0x71));
    }

    #[test]
    fn arbitrary_mappings_never_panic() {
        let numbers = bolero::check!().with_type::<(u8, u8, Vec<u32>, Vec<u8>, u8, u16)>();
        numbers.for_each(|(first, columns, keysyms, modifiers, keycode, state)| {
            let keymap = Keymap::new(*first, *columns, keysyms.clone(), modifiers);
            if let Some(keysym) = keymap.keysym(*keycode, *state) {
                keymap.positions(keysym, *state);
            }
            keymap.spare();
        });
    }
}
