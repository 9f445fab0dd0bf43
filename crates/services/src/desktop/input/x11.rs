//! X servers: connects to one, reads its keyboard mapping, and injects events with the extension
//! XTEST.

mod fake;
mod keyboard;

use std::os::unix::net::UnixStream;

use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::ReplyError;
use x11rb::protocol::Event as XEvent;
use x11rb::protocol::xproto::{
    BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT, ConnectionExt as _, MOTION_NOTIFY_EVENT, Window,
};
use x11rb::protocol::xtest::{self, ConnectionExt as _};
use x11rb::rust_connection::{DefaultStream, RustConnection};
use x11rb::{CURRENT_TIME, NONE};

use super::event::{Event, MAX_BUTTON};
use super::injector::{InjectError, Injector};
use super::keymap::Keymap;
use crate::desktop::screen::{Screen, authority};

use fake::fake;
use keyboard::{KeyError, Keyboard};

/// Connects to the X server of `screen`. Returns the connection and the number of the screen.
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
        let method = authority::METHOD.to_vec();
        let secret = secret.to_vec();
        let connection =
            RustConnection::connect_to_stream_with_auth_info(stream.0, index, method, secret);
        return connection.map(|connection| (connection, index)).map_err(|error| failed(&error));
    }
    // The library reads the authority file that the environment names.
    RustConnection::connect(Some(screen.display())).map_err(|error| failed(&error))
}

/// The numbers of display and screen, if the display is on this machine.
fn local(display: &str) -> Option<(u16, usize)> {
    let numbers = display.strip_prefix(':')?;
    let (number, index) = numbers.split_once('.').unwrap_or((numbers, "0"));
    Some((number.parse().ok()?, index.parse().ok()?))
}

/// The current mapping of the keyboard.
pub(crate) fn keymap(connection: &RustConnection) -> Result<Keymap, ReplyError> {
    let setup = connection.setup();
    let first = setup.min_keycode;
    let last = setup.max_keycode;
    let count = last.saturating_sub(first).saturating_add(1);
    let mapping = connection.get_keyboard_mapping(first, count)?;
    let modifiers = connection.get_modifier_mapping()?;
    let mapping = mapping.reply()?;
    let modifiers = modifiers.reply()?;
    Ok(Keymap::new(first, mapping.keysyms_per_keycode, mapping.keysyms, &modifiers.keycodes))
}

/// Injects events into an X server.
pub(crate) struct X11 {
    connection: RustConnection,
    root: Window,
    keyboard: Keyboard,
    /// The pressed buttons, one bit each.
    buttons: u32,
}

impl X11 {
    /// Connects, and checks that XTEST is available.
    ///
    /// # Errors
    /// The reason in one line, which names the display.
    pub(crate) fn open(screen: &Screen) -> Result<Self, String> {
        let (connection, index) = connect(screen)?;
        let failed = |error: ReplyError| format!("the screen {} failed: {error}", screen.display());
        let xtest = connection.extension_information(xtest::X11_EXTENSION_NAME);
        if xtest.map_err(|error| failed(error.into()))?.is_none() {
            return Err(format!(
                "the X server of screen {} does not have the extension XTEST",
                screen.display()
            ));
        }
        // Injection must continue while another program grabs the server.
        grab_control(&connection).map_err(failed)?;
        let keyboard = Keyboard::new(keymap(&connection).map_err(failed)?);
        let root = connection.setup().roots.get(index).map_or(NONE, |screen| screen.root);
        Ok(Self { connection, root, keyboard, buttons: 0 })
    }

    fn button(&mut self, button: u8, down: bool) -> Result<(), ReplyError> {
        let bit = 1 << button.min(MAX_BUTTON);
        // Programs do not expect a press of a pressed button, or a release of a released one.
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
        // Errors of requests without a reply arrive as events: see `Self::refresh_keymap`.
        drop(self.connection.xtest_fake_input(kind, detail, CURRENT_TIME, root, x, y, 0)?);
        Ok(())
    }

    fn release_all(&mut self) -> Result<(), ReplyError> {
        self.keyboard.release_all(&self.connection)?;
        for button in 1..=MAX_BUTTON {
            self.button(button, false)?;
        }
        Ok(())
    }

    /// Reads the mapping of the keyboard again if it has changed. Discards other events.
    fn refresh_keymap(&mut self) -> Result<(), ReplyError> {
        let mut changed = false;
        while let Some(event) = self.connection.poll_for_event()? {
            changed |= matches!(event, XEvent::MappingNotify(_));
        }
        if changed {
            self.keyboard.remap(keymap(&self.connection)?);
        }
        Ok(())
    }

    fn inject_event(&mut self, event: Event) -> Result<(), KeyError> {
        match event {
            Event::Motion { dx, dy } => self.motion(true, dx, dy)?,
            Event::Position { x, y } => {
                let [x, y] = [x, y].map(|at| i16::try_from(at).unwrap_or(i16::MAX));
                self.motion(false, x, y)?;
            }
            Event::Button { button, down } => self.button(button, down)?,
            Event::KeyDown { key, keysym } => {
                self.refresh_keymap()?;
                self.keyboard.press(&self.connection, self.root, key, keysym)?;
            }
            Event::KeyUp { key } => self.keyboard.release(&self.connection, key)?,
            Event::ReleaseAll => self.release_all()?,
            Event::StillHeld => {}
        }
        Ok(())
    }
}

impl Injector for X11 {
    fn inject(&mut self, event: Event) -> Result<(), InjectError> {
        self.inject_event(event).map_err(|error| match error {
            KeyError::Screen(error) => lost(error),
            other => InjectError::Refused(other.to_string()),
        })
    }

    fn finish(&mut self) -> Result<(), InjectError> {
        // The server processes requests in order: a reply means that it has processed all earlier
        // ones.
        let reply = self.connection.get_input_focus().map_err(ReplyError::from);
        reply.and_then(|cookie| cookie.reply()).map(drop).map_err(lost)
    }
}

impl Drop for X11 {
    fn drop(&mut self) {
        // Errors mean that the connection is lost, and the server has released everything.
        let _ = self.release_all();
        let _ = self.keyboard.clear(&self.connection);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_displays_of_this_machine() {
        assert_eq!(local(":0"), Some((0, 0)));
        assert_eq!(local(":12.1"), Some((12, 1)));
        for other in ["host:0", "unix:0", ":", ":a", ":70000"] {
            assert_eq!(local(other), None, "{other}");
        }
    }
}
