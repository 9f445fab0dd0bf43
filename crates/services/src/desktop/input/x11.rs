//! X servers: how to reach one, the mapping of its keyboard, and putting events in by the extension
//! XTEST.

mod typing;

use std::os::unix::net::UnixStream;

use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::ReplyError;
use x11rb::protocol::Event as XEvent;
use x11rb::protocol::xproto::{
    BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT, ConnectionExt as _, KEY_PRESS_EVENT,
    KEY_RELEASE_EVENT, MOTION_NOTIFY_EVENT, Window,
};
use x11rb::protocol::xtest::{self, ConnectionExt as _};
use x11rb::rust_connection::{DefaultStream, RustConnection};
use x11rb::{CURRENT_TIME, NONE};

use super::event::{Event, MAX_BUTTON};
use super::injector::{InjectError, Injector};
use super::keymap::Keymap;
use crate::desktop::screen::{Screen, authority};

use typing::Typing;

/// Connects to the X server of `screen`: the connection, and the number of the screen there.
///
/// # Errors
/// One line that names the display.
pub(crate) fn connect(screen: &Screen) -> Result<(RustConnection, usize), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("cannot use the screen {}: {error}", screen.display())
    };
    if let Some((number, index)) = local(screen.display())
        && let Some(path) = screen.authority()
        && let Ok(Some(secret)) = authority::secret(path, number)
        && let Ok(stream) = UnixStream::connect(format!("/tmp/.X11-unix/X{number}"))
    {
        let stream = DefaultStream::from_unix_stream(stream).map_err(|error| failed(&error))?;
        let (method, secret) = (authority::METHOD.to_vec(), secret.to_vec());
        let connection =
            RustConnection::connect_to_stream_with_auth_info(stream.0, index, method, secret);
        return connection.map(|connection| (connection, index)).map_err(|error| failed(&error));
    }
    // The library looks for the keys where the environment says.
    RustConnection::connect(Some(screen.display())).map_err(|error| failed(&error))
}

/// The numbers of display and screen, if the display is one of this machine.
fn local(display: &str) -> Option<(u16, usize)> {
    let numbers = display.strip_prefix(':')?;
    let (number, index) = numbers.split_once('.').unwrap_or((numbers, "0"));
    Some((number.parse().ok()?, index.parse().ok()?))
}

/// The mapping of the keyboard as it is now.
pub(crate) fn keymap(connection: &RustConnection) -> Result<Keymap, ReplyError> {
    let setup = connection.setup();
    let (first, last) = (setup.min_keycode, setup.max_keycode);
    let count = last.saturating_sub(first).saturating_add(1);
    let mapping = connection.get_keyboard_mapping(first, count)?;
    let modifiers = connection.get_modifier_mapping()?;
    let (mapping, modifiers) = (mapping.reply()?, modifiers.reply()?);
    Ok(Keymap::new(first, mapping.keysyms_per_keycode, mapping.keysyms, &modifiers.keycodes))
}

/// Puts events into an X server.
pub(crate) struct X11 {
    connection: RustConnection,
    root: Window,
    typing: Typing,
    /// Buttons that are down: a bit each.
    buttons: u32,
}

impl X11 {
    /// Connects; nothing is put in yet.
    ///
    /// # Errors
    /// One line that says what is wrong with the screen.
    pub(crate) fn open(screen: &Screen) -> Result<Self, String> {
        let (connection, index) = connect(screen)?;
        let failed = |error: ReplyError| format!("the screen {} failed: {error}", screen.display());
        let there = connection.extension_information(xtest::X11_EXTENSION_NAME);
        if there.map_err(|error| failed(error.into()))?.is_none() {
            return Err(format!("the screen {} lacks the extension XTEST", screen.display()));
        }
        // So that a program which keeps the server to itself does not shut us out.
        grab_control(&connection).map_err(failed)?;
        let typing = Typing::new(keymap(&connection).map_err(failed)?);
        let root = connection.setup().roots.get(index).map_or(NONE, |screen| screen.root);
        Ok(Self { connection, root, typing, buttons: 0 })
    }

    fn button(&mut self, button: u8, down: bool) -> Result<(), ReplyError> {
        let bit = 1 << button.min(MAX_BUTTON);
        // A second press, or a release of what was let go, would only confuse programs.
        if (self.buttons & bit != 0) == down {
            return Ok(());
        }
        self.buttons ^= bit;
        let kind = if down { BUTTON_PRESS_EVENT } else { BUTTON_RELEASE_EVENT };
        fake(&self.connection, kind, button)
    }

    fn motion(&self, relative: bool, x: i16, y: i16) -> Result<(), ReplyError> {
        let (detail, root) = if relative { (1, NONE) } else { (0, self.root) };
        let kind = MOTION_NOTIFY_EVENT;
        // Errors of requests without an answer arrive as events: see `Self::look`.
        drop(self.connection.xtest_fake_input(kind, detail, CURRENT_TIME, root, x, y, 0)?);
        Ok(())
    }

    fn release_all(&mut self) -> Result<(), ReplyError> {
        self.typing.release_all(&self.connection)?;
        for button in 1..=MAX_BUTTON {
            self.button(button, false)?;
        }
        Ok(())
    }

    /// Sees whether the mapping of the keyboard has changed.
    fn look(&mut self) -> Result<(), ReplyError> {
        let mut changed = false;
        while let Some(event) = self.connection.poll_for_event()? {
            changed |= matches!(event, XEvent::MappingNotify(_));
        }
        if changed {
            self.typing.remap(keymap(&self.connection)?);
        }
        Ok(())
    }

    fn put(&mut self, event: Event) -> Result<(), typing::Refused> {
        match event {
            Event::Motion { dx, dy } => self.motion(true, dx, dy)?,
            Event::Position { x, y } => {
                let [x, y] = [x, y].map(|at| i16::try_from(at).unwrap_or(i16::MAX));
                self.motion(false, x, y)?;
            }
            Event::Button { button, down } => self.button(button, down)?,
            Event::KeyDown { key, keysym } => {
                self.look()?;
                self.typing.press(&self.connection, self.root, key, keysym)?;
            }
            Event::KeyUp { key } => self.typing.release(&self.connection, key)?,
            Event::ReleaseAll => self.release_all()?,
            Event::StillHeld => {}
        }
        Ok(())
    }
}

impl Injector for X11 {
    fn inject(&mut self, event: Event) -> Result<(), InjectError> {
        self.put(event).map_err(|refused| match refused {
            typing::Refused::Screen(error) => lost(error),
            other => InjectError::Refused(other.to_string()),
        })
    }

    fn finish(&mut self) -> Result<(), InjectError> {
        // An answer means that everything before it was taken.
        let answer = self.connection.get_input_focus().map_err(ReplyError::from);
        answer.and_then(|cookie| cookie.reply()).map(drop).map_err(lost)
    }
}

impl Drop for X11 {
    fn drop(&mut self) {
        // If the server is gone, so is what was held.
        let _ = self.release_all();
        let _ = self.typing.clear(&self.connection);
        let _ = self.finish();
    }
}

fn lost(error: ReplyError) -> InjectError {
    InjectError::Lost(error.to_string())
}

fn grab_control(connection: &RustConnection) -> Result<(), ReplyError> {
    connection.xtest_get_version(2, 2)?.reply()?;
    connection.xtest_grab_control(true)?.check()
}

/// A key or a button. Errors of requests without an answer are no concern of ours: the numbers are
/// those of the server.
fn fake(connection: &RustConnection, kind: u8, detail: u8) -> Result<(), ReplyError> {
    drop(connection.xtest_fake_input(kind, detail, CURRENT_TIME, NONE, 0, 0, 0)?);
    Ok(())
}

/// Presses a key, or lets it go.
fn fake_key(connection: &RustConnection, keycode: u8, down: bool) -> Result<(), ReplyError> {
    fake(connection, if down { KEY_PRESS_EVENT } else { KEY_RELEASE_EVENT }, keycode)
}

/// Waits until programs have been told of a new mapping before the key is pressed that has it.
fn remap_key(connection: &RustConnection, keycode: u8, keysym: u32) -> Result<(), ReplyError> {
    connection.change_keyboard_mapping(1, keycode, 2, &[keysym, keysym])?.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_of_this_machine_are_known() {
        assert_eq!(local(":0"), Some((0, 0)));
        assert_eq!(local(":12.1"), Some((12, 1)));
        for other in ["host:0", "unix:0", ":", ":a", ":70000"] {
            assert_eq!(local(other), None, "{other}");
        }
    }
}
