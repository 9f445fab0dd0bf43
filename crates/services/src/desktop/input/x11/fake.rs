//! Requests that simulate keys and buttons.

use x11rb::errors::ReplyError;
use x11rb::protocol::xproto::{ConnectionExt as _, KEY_PRESS_EVENT, KEY_RELEASE_EVENT};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;
use x11rb::{CURRENT_TIME, NONE};

/// Injects a key or button event. Errors are ignored: the numbers of keys and buttons come from the
/// server.
pub(super) fn fake(connection: &RustConnection, kind: u8, detail: u8) -> Result<(), ReplyError> {
    drop(connection.xtest_fake_input(kind, detail, CURRENT_TIME, NONE, 0, 0, 0)?);
    Ok(())
}

/// Presses or releases a key.
pub(super) fn fake_key(
    connection: &RustConnection,
    keycode: u8,
    down: bool,
) -> Result<(), ReplyError> {
    fake(connection, if down { KEY_PRESS_EVENT } else { KEY_RELEASE_EVENT }, keycode)
}

/// Maps a key to a keysym, and waits until the server has notified the programs, before the key is
/// pressed.
pub(super) fn remap_key(
    connection: &RustConnection,
    keycode: u8,
    keysym: u32,
) -> Result<(), ReplyError> {
    connection.change_keyboard_mapping(1, keycode, 2, &[keysym, keysym])?.check()
}
