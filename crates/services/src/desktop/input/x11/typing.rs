//! Keys: which of this keyboard's gives what the other one's stands for, and what is held.

use std::time::Instant;

use thiserror::Error;
use x11rb::errors::{ConnectionError, ReplyError};
use x11rb::protocol::xproto::{ConnectionExt as _, Window};
use x11rb::rust_connection::RustConnection;

use super::{fake_key, remap_key};
use crate::desktop::input::budget::Budget;
use crate::desktop::input::keymap::{Keymap, Place, SHIFT};
use crate::desktop::input::keysym::{LEVEL_3, NONE, SHIFT_L, is_lock, is_modifier, is_text, one};

/// How many spare keys are used at most.
const MAX_SPARE: usize = 8;
/// New symbols for spare keys: so many a second, and so many at once. Every program of the screen is
/// told of each, and asks for the whole mapping.
const REMAP_RATE: u32 = 10;
const REMAP_BURST: u32 = 20;

/// Why a key was not pressed.
#[derive(Debug, Error)]
pub(super) enum Refused {
    /// No key of this keyboard gives it, and none can be made to.
    #[error("no key of the screen's keyboard gives the keysym {0:#x}")]
    Unmapped(u32),
    /// Too many keysyms that no key gives, within too short a time.
    #[error("too many different characters that the screen's keyboard lacks")]
    TooFast,
    /// The screen failed.
    #[error(transparent)]
    Screen(#[from] ReplyError),
}

impl From<ConnectionError> for Refused {
    fn from(error: ConnectionError) -> Self {
        Self::Screen(error.into())
    }
}

/// The keyboard, and the keys of it that are down because of us.
pub(super) struct Typing {
    keymap: Keymap,
    /// By the other side's key: what is down for it here.
    held: [Option<u8>; 256],
    spare: Vec<Spare>,
    remaps: Budget,
}

/// A key without a symbol of its own, which was given one.
struct Spare {
    keycode: u8,
    keysym: u32,
    used: Instant,
}

impl Typing {
    pub(super) fn new(keymap: Keymap) -> Self {
        let remaps = Budget::new(REMAP_RATE, REMAP_BURST);
        Self { keymap, held: [None; 256], spare: Vec::new(), remaps }
    }

    /// The mapping has changed.
    pub(super) fn remap(&mut self, keymap: Keymap) {
        // Somebody else may have given our spare keys other symbols.
        self.spare.retain(|spare| keymap.label(spare.keycode) == Some(spare.keysym));
        self.keymap = keymap;
    }

    /// Presses what gives `keysym`, and holds it for the other side's `key`.
    pub(super) fn press(
        &mut self,
        connection: &RustConnection,
        root: Window,
        key: u8,
        keysym: u32,
    ) -> Result<(), Refused> {
        self.release(connection, key)?;
        let keysym = one(keysym);
        if keysym == NONE || is_lock(keysym) {
            return Err(Refused::Unmapped(keysym));
        }
        let state = u16::from(connection.query_pointer(root)?.reply()?.mask);
        let places = self.keymap.places(keysym, state);
        if is_modifier(keysym) {
            let place = places.first().ok_or(Refused::Unmapped(keysym))?;
            return self.hold(connection, key, place.keycode);
        }
        let deep = state & self.keymap.mask(LEVEL_3) != 0;
        let shift = state & SHIFT != 0;
        let fits = |place: &&Place| {
            place.shift.is_none_or(|wanted| wanted == shift)
                && place.level_3.is_none_or(|wanted| wanted == deep)
        };
        if let Some(place) = places.iter().find(fits) {
            return self.hold(connection, key, place.keycode);
        }
        match places.first() {
            Some(place) => self.tap(connection, *place, shift, deep),
            None => {
                let keycode = self.spare_for(connection, keysym)?;
                self.hold(connection, key, keycode)
            }
        }
    }

    /// Lets go of what is held for the other side's `key`.
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

    /// Lets go of everything.
    pub(super) fn release_all(&mut self, connection: &RustConnection) -> Result<(), ReplyError> {
        for key in 0..=u8::MAX {
            self.release(connection, key)?;
        }
        Ok(())
    }

    /// Takes the symbols off the spare keys again.
    pub(super) fn clear(&mut self, connection: &RustConnection) -> Result<(), ReplyError> {
        for spare in self.spare.drain(..) {
            remap_key(connection, spare.keycode, NONE)?;
        }
        Ok(())
    }

    fn hold(&mut self, connection: &RustConnection, key: u8, keycode: u8) -> Result<(), Refused> {
        // Two keys there may be one here: the server would not see the second press.
        if let Some(other) = self.held.iter().position(|held| *held == Some(keycode)) {
            self.held[other] = None;
            fake_key(connection, keycode, false)?;
        }
        fake_key(connection, keycode, true)?;
        self.held[usize::from(key)] = Some(keycode);
        Ok(())
    }

    /// Presses a key under other modifiers than those that are down, and lets it go at once: if it
    /// stayed down it would repeat under the wrong ones.
    fn tap(
        &self,
        connection: &RustConnection,
        place: Place,
        shift: bool,
        deep: bool,
    ) -> Result<(), Refused> {
        let mut changes = Vec::new();
        for (wanted, is, symbol, mask) in [
            (place.shift, shift, SHIFT_L, SHIFT),
            (place.level_3, deep, LEVEL_3, self.keymap.mask(LEVEL_3)),
        ] {
            match wanted {
                Some(true) if !is => {
                    let modifier = self.keymap.places(symbol, 0);
                    let modifier = modifier.first().ok_or(Refused::Unmapped(symbol))?;
                    changes.push((modifier.keycode, true));
                }
                Some(false) if is => {
                    let held = self.held.iter().flatten();
                    let ours = held.filter(|keycode| self.keymap.modifies(**keycode, mask));
                    changes.extend(ours.map(|keycode| (*keycode, false)));
                }
                _ => {}
            }
        }
        for (keycode, down) in &changes {
            fake_key(connection, *keycode, *down)?;
        }
        fake_key(connection, place.keycode, true)?;
        fake_key(connection, place.keycode, false)?;
        for (keycode, down) in changes.iter().rev() {
            fake_key(connection, *keycode, !*down)?;
        }
        Ok(())
    }

    /// A key without a symbol is given this one: the one that has had its symbol longest, once there is
    /// no other.
    fn spare_for(&mut self, connection: &RustConnection, keysym: u32) -> Result<u8, Refused> {
        if !is_text(keysym) {
            return Err(Refused::Unmapped(keysym));
        }
        let now = Instant::now();
        if !self.remaps.take_one(now) {
            return Err(Refused::TooFast);
        }
        let keycode = if self.spare.len() < MAX_SPARE {
            let free = self.keymap.spare();
            let unused = |key: &u8| self.spare.iter().all(|spare| spare.keycode != *key);
            // From the end: the first ones belong to keys that are merely unknown to the layout.
            free.into_iter().rev().find(unused)
        } else {
            None
        };
        let keycode = match keycode {
            Some(keycode) => keycode,
            None => self.oldest().ok_or(Refused::Unmapped(keysym))?,
        };
        remap_key(connection, keycode, keysym)?;
        self.spare.push(Spare { keycode, keysym, used: now });
        Ok(keycode)
    }

    /// Takes the spare key off the list that was given its symbol first and is not down.
    fn oldest(&mut self) -> Option<u8> {
        let down = |spare: &Spare| self.held.contains(&Some(spare.keycode));
        let free = self.spare.iter().enumerate().filter(|(_, spare)| !down(spare));
        let (index, _) = free.min_by_key(|(_, spare)| spare.used)?;
        Some(self.spare.swap_remove(index).keycode)
    }
}
