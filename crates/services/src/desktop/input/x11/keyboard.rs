//! The keyboard of an X server: finds a key for each keysym, presses and releases it, and tracks
//! the pressed keys.

use std::time::Instant;

use thiserror::Error;
use x11rb::errors::{ConnectionError, ReplyError};
use x11rb::protocol::xproto::{ConnectionExt as _, Window};
use x11rb::rust_connection::RustConnection;

use super::fake::{fake_key, remap_key};
use crate::desktop::input::keymap::{KeyPosition, Keymap, SHIFT};
use crate::desktop::input::keysym::{
    LEVEL_3, NONE, SHIFT_L, canonical, is_lock, is_modifier, is_text,
};
use crate::desktop::input::rate_limiter::RateLimiter;

/// Maximum number of spare keys that are used.
const MAX_SPARE: usize = 8;
/// New keysyms of spare keys, per second. The X server notifies every program of each, and each
/// program then requests the whole mapping.
const REMAP_RATE: u32 = 10;
/// New keysyms of spare keys at once.
const REMAP_BURST: u32 = 20;

/// Why a key was not pressed.
#[derive(Debug, Error)]
pub(super) enum KeyError {
    /// No key has the keysym, and no spare key can be mapped to it.
    #[error("no key of the screen's keyboard has the keysym {0:#x}")]
    Unmapped(u32),
    /// Too many spare keys would have to be mapped in a short time.
    #[error("too many different characters that the screen's keyboard does not have")]
    TooFast,
    /// The screen failed.
    #[error(transparent)]
    Screen(#[from] ReplyError),
}

impl From<ConnectionError> for KeyError {
    fn from(error: ConnectionError) -> Self {
        Self::Screen(error.into())
    }
}

/// A keyboard, and its keys that this session pressed.
pub(super) struct Keyboard {
    keymap: Keymap,
    /// The pressed keycode for each key of the client.
    held: [Option<u8>; 256],
    spare: Vec<SpareKey>,
    remaps: RateLimiter,
}

/// A spare key, which was mapped to a keysym.
struct SpareKey {
    keycode: u8,
    keysym: u32,
    mapped: Instant,
}

impl Keyboard {
    pub(super) fn new(keymap: Keymap) -> Self {
        let remaps = RateLimiter::new(REMAP_RATE, REMAP_BURST);
        Self { keymap, held: [None; 256], spare: Vec::new(), remaps }
    }

    /// Handles a change of the mapping.
    pub(super) fn remap(&mut self, keymap: Keymap) {
        // Another program may have mapped the spare keys to other keysyms.
        self.spare.retain(|spare| keymap.label(spare.keycode) == Some(spare.keysym));
        self.keymap = keymap;
    }

    /// Presses a key that has `keysym`, and holds it for the client's `key`.
    pub(super) fn press(
        &mut self,
        connection: &RustConnection,
        root: Window,
        key: u8,
        keysym: u32,
    ) -> Result<(), KeyError> {
        self.release(connection, key)?;
        let keysym = canonical(keysym);
        if keysym == NONE || is_lock(keysym) {
            return Err(KeyError::Unmapped(keysym));
        }
        let state = u16::from(connection.query_pointer(root)?.reply()?.mask);
        let positions = self.keymap.positions(keysym, state);
        if is_modifier(keysym) {
            let position = positions.first().ok_or(KeyError::Unmapped(keysym))?;
            return self.hold(connection, key, position.keycode);
        }
        let level_3 = state & self.keymap.mask(LEVEL_3) != 0;
        let shift = state & SHIFT != 0;
        let matches = |position: &&KeyPosition| {
            position.shift.is_none_or(|wanted| wanted == shift)
                && position.level_3.is_none_or(|wanted| wanted == level_3)
        };
        if let Some(position) = positions.iter().find(matches) {
            return self.hold(connection, key, position.keycode);
        }
        match positions.first() {
            Some(position) => self.tap(connection, *position, shift, level_3),
            None => {
                let keycode = self.map_spare_key(connection, keysym)?;
                self.hold(connection, key, keycode)
            }
        }
    }

    /// Releases the key that is held for the client's `key`.
    pub(super) fn release(
        &mut self,
        connection: &RustConnection,
        key: u8,
    ) -> Result<(), ReplyError> {
        match self.held[usize::from(key)].take() {
            Some(keycode) => fake_key(connection, keycode, false),
            None => Ok(()),
        }
    }

    /// Releases all keys.
    pub(super) fn release_all(&mut self, connection: &RustConnection) -> Result<(), ReplyError> {
        for key in 0..=u8::MAX {
            self.release(connection, key)?;
        }
        Ok(())
    }

    /// Removes the keysyms of the spare keys.
    pub(super) fn clear(&mut self, connection: &RustConnection) -> Result<(), ReplyError> {
        for spare in self.spare.drain(..) {
            remap_key(connection, spare.keycode, NONE)?;
        }
        Ok(())
    }

    fn hold(&mut self, connection: &RustConnection, key: u8, keycode: u8) -> Result<(), KeyError> {
        // Two keys of the client may be one key here. It is released first, because the server
        // ignores a second press.
        if let Some(other) = self.held.iter().position(|held| *held == Some(keycode)) {
            self.held[other] = None;
            fake_key(connection, keycode, false)?;
        }
        fake_key(connection, keycode, true)?;
        self.held[usize::from(key)] = Some(keycode);
        Ok(())
    }

    /// Presses a key with other modifiers than those that are pressed, and releases it at once: if
    /// it stayed pressed, it would repeat with the wrong modifiers.
    fn tap(
        &self,
        connection: &RustConnection,
        position: KeyPosition,
        shift: bool,
        level_3: bool,
    ) -> Result<(), KeyError> {
        let mut changes = Vec::new();
        for (wanted, active, symbol, mask) in [
            (position.shift, shift, SHIFT_L, SHIFT),
            (position.level_3, level_3, LEVEL_3, self.keymap.mask(LEVEL_3)),
        ] {
            match wanted {
                Some(true) if !active => {
                    let modifier = self.keymap.positions(symbol, 0);
                    let modifier = modifier.first().ok_or(KeyError::Unmapped(symbol))?;
                    changes.push((modifier.keycode, true));
                }
                Some(false) if active => {
                    let held = self.held.iter().flatten();
                    let pressed = held.filter(|keycode| self.keymap.modifies(**keycode, mask));
                    changes.extend(pressed.map(|keycode| (*keycode, false)));
                }
                _ => {}
            }
        }
        for (keycode, down) in &changes {
            fake_key(connection, *keycode, *down)?;
        }
        fake_key(connection, position.keycode, true)?;
        fake_key(connection, position.keycode, false)?;
        for (keycode, down) in changes.iter().rev() {
            fake_key(connection, *keycode, !*down)?;
        }
        Ok(())
    }

    /// Maps a spare key to the keysym. If none is left, the one that was mapped first is reused.
    fn map_spare_key(&mut self, connection: &RustConnection, keysym: u32) -> Result<u8, KeyError> {
        if !is_text(keysym) {
            return Err(KeyError::Unmapped(keysym));
        }
        let now = Instant::now();
        if !self.remaps.take_one(now) {
            return Err(KeyError::TooFast);
        }
        let keycode = if self.spare.len() < MAX_SPARE {
            let free = self.keymap.spare();
            let unused = |key: &u8| self.spare.iter().all(|spare| spare.keycode != *key);
            // From the end: the first ones may be existing keys that the layout does not define.
            free.into_iter().rev().find(unused)
        } else {
            None
        };
        let keycode = match keycode {
            Some(keycode) => keycode,
            None => self.take_oldest_spare().ok_or(KeyError::Unmapped(keysym))?,
        };
        remap_key(connection, keycode, keysym)?;
        self.spare.push(SpareKey { keycode, keysym, mapped: now });
        Ok(keycode)
    }

    /// Removes from the list the spare key that was mapped first, among those that are not pressed.
    fn take_oldest_spare(&mut self) -> Option<u8> {
        let down = |spare: &SpareKey| self.held.contains(&Some(spare.keycode));
        let free = self.spare.iter().enumerate().filter(|(_, spare)| !down(spare));
        let (index, _) = free.min_by_key(|(_, spare)| spare.mapped)?;
        Some(self.spare.swap_remove(index).keycode)
    }
}
