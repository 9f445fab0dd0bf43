//! Grabs the keyboard and pointer of an X server: their input becomes [`Event`]s, and does not
//! reach other programs.

mod combination;
mod motion;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::mpsc;
use x11rb::connection::{Connection, SequenceNumber};
use x11rb::errors::{ReplyError, ReplyOrIdError};
use x11rb::protocol::Event as XEvent;
use x11rb::protocol::xkb::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{
    ConnectionExt as _, CreateGCAux, CreateWindowAux, Cursor, EventMask, GrabMode, GrabStatus,
    Rectangle, Screen as Root, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::{COPY_FROM_PARENT, CURRENT_TIME, NONE};

use super::event::{Event, MAX_BUTTON};
use super::keymap::Keymap;
use super::keysym::is_lock;
use super::x11::{connect, keymap};
use crate::desktop::screen::Screen;

pub use combination::Combination;
use motion::Tracker;

/// Capacity of the queue of captured events.
const QUEUE_LENGTH: usize = 1024;
/// How long to wait until earlier keys are released, and until other programs release keyboard or
/// pointer.
const GRAB_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Why a capture could not start, or ended.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CaptureError {
    /// The X server failed.
    #[error("{0}")]
    Screen(String),
    /// Another program has a grab.
    #[error("another program has grabbed the {0}: close its menu, or unlock the screen")]
    Busy(&'static str),
}

/// A captured input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// An event to send.
    Event(Event),
    /// The release combination was pressed.
    Released,
}

/// A grab of keyboard and pointer. Dropping it releases them.
pub struct Capture {
    events: mpsc::Receiver<Result<Captured, CaptureError>>,
    grab: Arc<Grab>,
}

/// The connection with the grab, and what is needed to release it.
struct Grab {
    connection: RustConnection,
    root: Root,
    /// An invisible window, whose destruction ends the reading thread.
    window: Window,
    /// The position of the pointer before the grab.
    initial_position: (i16, i16),
}

impl Capture {
    /// Grabs keyboard and pointer of `screen` until `combination` is pressed, or this is dropped.
    /// Blocks for up to some seconds.
    ///
    /// # Errors
    /// [`CaptureError`] if the X server fails, or another program has grabbed keyboard or pointer.
    pub fn start(screen: &Screen, combination: Combination) -> Result<Self, CaptureError> {
        let (connection, index) = connect(screen).map_err(CaptureError::Screen)?;
        let root = connection.setup().roots.get(index).cloned();
        let root =
            root.ok_or_else(|| CaptureError::Screen("the screen has no root window".into()))?;
        use_xkb(&connection)?;
        let keymap = keymap(&connection)?;
        let initial_position = position(&connection, root.root)?;
        let window = waker_window(&connection, root.root)?;
        let cursor = invisible_cursor(&connection, root.root)?;
        let grab = Arc::new(Grab { connection, root, window, initial_position });
        let mut tracker = Tracker::new(grab.middle(), grab.shorter_side(), initial_position);
        tracker.warped(grab.acquire(cursor)?);
        let (sender, events) = mpsc::channel(QUEUE_LENGTH);
        let pressed = [false; 256];
        let reader = Reader { grab: grab.clone(), keymap, tracker, combination, pressed, sender };
        let thread = thread::Builder::new().spawn(move || reader.run());
        thread.map_err(|error| {
            CaptureError::Screen(format!(
                "cannot start a thread for the events of the screen: {error}"
            ))
        })?;
        Ok(Self { events, grab })
    }

    /// The next input. Cancel-safe: dropping the future loses no input.
    ///
    /// # Errors
    /// [`CaptureError::Screen`] if the connection to the X server is lost.
    pub async fn next(&mut self) -> Result<Captured, CaptureError> {
        let gone = || Err(CaptureError::Screen("the screen is gone".into()));
        self.events.recv().await.unwrap_or_else(gone)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.grab.release();
    }
}

impl Grab {
    /// Grabs both, hides the pointer, and moves it to the middle. Returns the number of
    /// [`Self::warp`].
    fn acquire(&self, cursor: Cursor) -> Result<SequenceNumber, CaptureError> {
        let connection = &self.connection;
        let root = self.root.root;
        let end = Instant::now() + GRAB_TIMEOUT;
        // The key that started the command may still be pressed. Its release belongs to the program
        // that received its press.
        while Instant::now() < end && any_key_pressed(connection)? {
            thread::sleep(RETRY_INTERVAL);
        }
        let mask = EventMask::POINTER_MOTION | EventMask::BUTTON_PRESS | EventMask::BUTTON_RELEASE;
        let mode = GrabMode::ASYNC;
        retry("pointer", || {
            let nowhere = NONE;
            let now = CURRENT_TIME;
            let cookie =
                connection.grab_pointer(false, root, mask, mode, mode, nowhere, cursor, now)?;
            Ok(cookie.reply()?.status)
        })?;
        retry("keyboard", || {
            let cookie = connection.grab_keyboard(false, root, CURRENT_TIME, mode, mode)?;
            Ok(cookie.reply()?.status)
        })?;
        Ok(self.warp(self.middle())?)
    }

    fn middle(&self) -> (i16, i16) {
        let half = |size: u16| i16::try_from(size / 2).unwrap_or(i16::MAX);
        (half(self.root.width_in_pixels), half(self.root.height_in_pixels))
    }

    fn shorter_side(&self) -> u16 {
        self.root.width_in_pixels.min(self.root.height_in_pixels)
    }

    /// Moves the pointer. Events from the returned sequence number on happened after the move.
    fn warp(&self, (x, y): (i16, i16)) -> Result<SequenceNumber, ReplyError> {
        let to = self.root.root;
        let cookie = self.connection.warp_pointer(NONE, to, 0, 0, 0, 0, x, y)?;
        let number = cookie.sequence_number();
        drop(cookie);
        self.connection.flush()?;
        Ok(number)
    }

    fn release(&self) {
        let release = || -> Result<(), ReplyError> {
            drop(self.connection.ungrab_keyboard(CURRENT_TIME)?);
            drop(self.connection.ungrab_pointer(CURRENT_TIME)?);
            drop(self.connection.destroy_window(self.window)?);
            self.warp(self.initial_position)?;
            Ok(())
        };
        // An error means that the connection is lost, which releases the grab.
        let _ = release();
    }
}

/// Reads events in a separate thread.
struct Reader {
    grab: Arc<Grab>,
    keymap: Keymap,
    tracker: Tracker,
    combination: Combination,
    /// The keys that were pressed since the start.
    pressed: [bool; 256],
    sender: mpsc::Sender<Result<Captured, CaptureError>>,
}

impl Reader {
    fn run(mut self) {
        if let Err(error) = self.read() {
            let _ = self.sender.blocking_send(Err(error.into()));
        }
    }

    /// Reads until the capture is dropped.
    fn read(&mut self) -> Result<(), ReplyError> {
        loop {
            let (event, number) = self.grab.connection.wait_for_event_with_sequence()?;
            let captured = match event {
                XEvent::MotionNotify(event) => self.moved((event.root_x, event.root_y), number)?,
                XEvent::KeyPress(event) => self.pressed(event.detail, event.state.into()),
                XEvent::KeyRelease(event) => self.released(event.detail),
                XEvent::ButtonPress(event) => button(event.detail, true),
                XEvent::ButtonRelease(event) => button(event.detail, false),
                XEvent::MappingNotify(_)
                | XEvent::XkbMapNotify(_)
                | XEvent::XkbNewKeyboardNotify(_) => {
                    self.keymap = keymap(&self.grab.connection)?;
                    None
                }
                XEvent::DestroyNotify(event) if event.window == self.grab.window => return Ok(()),
                _ => None,
            };
            if let Some(captured) = captured
                && self.sender.blocking_send(Ok(captured)).is_err()
            {
                return Ok(());
            }
        }
    }

    fn moved(
        &mut self,
        at: (i16, i16),
        number: SequenceNumber,
    ) -> Result<Option<Captured>, ReplyError> {
        let motion = self.tracker.moved(at, number);
        if self.tracker.is_far() {
            self.tracker.warped(self.grab.warp(self.grab.middle())?);
        }
        Ok(motion.map(Captured::Event))
    }

    fn pressed(&mut self, keycode: u8, state: u16) -> Option<Captured> {
        let repeated = std::mem::replace(&mut self.pressed[usize::from(keycode)], true);
        if self.combination.is_pressed(self.keymap.label(keycode), state) {
            return Some(Captured::Released);
        }
        let keysym = self.keymap.keysym(keycode, state)?;
        // The other X server repeats held keys itself. The keysyms already include the effect of
        // locks.
        if repeated || is_lock(keysym) {
            return None;
        }
        Some(Captured::Event(Event::KeyDown { key: keycode, keysym }))
    }

    fn released(&mut self, keycode: u8) -> Option<Captured> {
        let was_down = std::mem::take(&mut self.pressed[usize::from(keycode)]);
        was_down.then_some(Captured::Event(Event::KeyUp { key: keycode }))
    }
}

fn button(button: u8, down: bool) -> Option<Captured> {
    let known = (1..=MAX_BUTTON).contains(&button);
    known.then_some(Captured::Event(Event::Button { button, down }))
}

/// Repeats a grab until [`GRAB_TIMEOUT`], because another program may have a grab for a moment.
fn retry(
    what: &'static str,
    grab: impl Fn() -> Result<GrabStatus, ReplyError>,
) -> Result<(), CaptureError> {
    let end = Instant::now() + GRAB_TIMEOUT;
    loop {
        if grab()? == GrabStatus::SUCCESS {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(CaptureError::Busy(what));
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Suppresses the release events of auto-repeat (The X Keyboard Extension, section 4.1.2). A client
/// of the extension receives mapping changes only as its events, so these are selected. Without the
/// extension held keys repeat, which is harmless.
fn use_xkb(connection: &RustConnection) -> Result<(), ReplyError> {
    let used = connection.xkb_use_extension(1, 0).map_err(ReplyError::from);
    let Ok(used) = used.and_then(|cookie| cookie.reply()) else { return Ok(()) };
    if !used.supported {
        return Ok(());
    }
    let device = xkb::ID::USE_CORE_KBD.into();
    let flag = xkb::PerClientFlag::DETECTABLE_AUTO_REPEAT;
    let none = || xkb::BoolCtrl::from(0u8);
    let cookie = connection.xkb_per_client_flags(device, flag, flag, none(), none(), none())?;
    cookie.reply()?;
    let events = xkb::EventType::NEW_KEYBOARD_NOTIFY | xkb::EventType::MAP_NOTIFY;
    let clear = xkb::EventType::from(0u8);
    let parts = xkb::MapPart::from(0u8);
    let details = xkb::SelectEventsAux::new();
    connection.xkb_select_events(device, clear, events, parts, parts, &details)?.check()
}

fn any_key_pressed(connection: &RustConnection) -> Result<bool, ReplyError> {
    let keys = connection.query_keymap()?.reply()?.keys;
    Ok(keys.iter().any(|bits| *bits != 0))
}

fn position(connection: &RustConnection, root: Window) -> Result<(i16, i16), ReplyError> {
    let pointer = connection.query_pointer(root)?.reply()?;
    Ok((pointer.root_x, pointer.root_y))
}

/// Creates an invisible window that reports its destruction.
fn waker_window(connection: &RustConnection, root: Window) -> Result<Window, ReplyOrIdError> {
    let window = connection.generate_id()?;
    let attributes = CreateWindowAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
    let kind = WindowClass::INPUT_ONLY;
    let visual = COPY_FROM_PARENT;
    drop(connection.create_window(0, window, root, -1, -1, 1, 1, 0, kind, visual, &attributes)?);
    Ok(window)
}

/// Creates a cursor in which no pixel is set.
fn invisible_cursor(connection: &RustConnection, root: Window) -> Result<Cursor, ReplyOrIdError> {
    let pixmap = connection.generate_id()?;
    let context = connection.generate_id()?;
    let cursor = connection.generate_id()?;
    let dot = Rectangle { x: 0, y: 0, width: 1, height: 1 };
    drop(connection.create_pixmap(1, pixmap, root, 1, 1)?);
    drop(connection.create_gc(context, pixmap, &CreateGCAux::new().foreground(0))?);
    drop(connection.poly_fill_rectangle(pixmap, context, &[dot])?);
    drop(connection.create_cursor(cursor, pixmap, pixmap, 0, 0, 0, 0, 0, 0, 0, 0)?);
    drop(connection.free_gc(context)?);
    drop(connection.free_pixmap(pixmap)?);
    Ok(cursor)
}

impl From<ReplyError> for CaptureError {
    fn from(error: ReplyError) -> Self {
        Self::Screen(format!("the screen failed: {error}"))
    }
}

impl From<ReplyOrIdError> for CaptureError {
    fn from(error: ReplyOrIdError) -> Self {
        Self::Screen(format!("the screen failed: {error}"))
    }
}
