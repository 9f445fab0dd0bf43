//! Takes keyboard and pointer of an X server, so that whatever is done with them is an [`Event`] here
//! and nothing there.

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

/// Events that nobody has taken yet.
const WAITING: usize = 1024;
/// How long others may hold keyboard or pointer, or keys may still be down from before.
const PATIENCE: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(20);

/// Why keyboard and pointer could not be taken, or were lost.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CaptureError {
    /// The screen cannot be used.
    #[error("{0}")]
    Screen(String),
    /// Another program has them.
    #[error("another program keeps the {0} to itself: close its menu, or unlock the screen")]
    Busy(&'static str),
}

/// What came from the hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// Something to pass on.
    Event(Event),
    /// The keys that let go were pressed.
    LetGo,
}

/// Keyboard and pointer, taken. Dropping it gives them back.
pub struct Capture {
    events: mpsc::Receiver<Result<Captured, CaptureError>>,
    grab: Arc<Grab>,
}

/// What is to be undone.
struct Grab {
    connection: RustConnection,
    root: Root,
    /// Ends the thread that reads when it is destroyed: nothing is ever seen in it.
    window: Window,
    /// Where the pointer was.
    before: (i16, i16),
}

impl Capture {
    /// Takes keyboard and pointer of `screen` until `combination` is pressed, or this is dropped. May
    /// take some seconds: call it where that does not matter.
    ///
    /// # Errors
    /// [`CaptureError`] if the screen cannot be used, or another program has what is wanted.
    pub fn start(screen: &Screen, combination: Combination) -> Result<Self, CaptureError> {
        let (connection, index) = connect(screen).map_err(CaptureError::Screen)?;
        let root = connection.setup().roots.get(index).cloned();
        let root = root.ok_or_else(|| CaptureError::Screen("it has no root window".into()))?;
        use_xkb(&connection)?;
        let keymap = keymap(&connection)?;
        let before = position(&connection, root.root)?;
        let window = waker(&connection, root.root)?;
        let cursor = invisible(&connection, root.root)?;
        let grab = Arc::new(Grab { connection, root, window, before });
        let mut tracker = Tracker::new(grab.middle(), grab.shorter_side(), before);
        tracker.warped(grab.take(cursor)?);
        let (sender, events) = mpsc::channel(WAITING);
        let (down, reading) = ([false; 256], grab.clone());
        let reader = Reader { grab: reading, keymap, tracker, combination, down, sender };
        let thread = thread::Builder::new().spawn(move || reader.run());
        thread.map_err(|error| CaptureError::Screen(format!("cannot read its events: {error}")))?;
        Ok(Self { events, grab })
    }

    /// What comes next. If the future is dropped, nothing is lost.
    ///
    /// # Errors
    /// [`CaptureError::Screen`] if the screen is gone.
    pub async fn next(&mut self) -> Result<Captured, CaptureError> {
        let gone = || Err(CaptureError::Screen("the screen is gone".into()));
        self.events.recv().await.unwrap_or_else(gone)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.grab.give_back();
    }
}

impl Grab {
    /// Takes both, the pointer without a picture, and puts it in the middle: see [`Self::warp`].
    fn take(&self, cursor: Cursor) -> Result<SequenceNumber, CaptureError> {
        let (connection, root) = (&self.connection, self.root.root);
        let end = Instant::now() + PATIENCE;
        // The key that started the command is still down: its end belongs to those who saw it go down.
        while Instant::now() < end && keys_are_down(connection)? {
            thread::sleep(STEP);
        }
        let mask = EventMask::POINTER_MOTION | EventMask::BUTTON_PRESS | EventMask::BUTTON_RELEASE;
        let mode = GrabMode::ASYNC;
        retry("pointer", || {
            let (nowhere, now) = (NONE, CURRENT_TIME);
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

    /// Moves the pointer; events from the returned number on were made after it.
    fn warp(&self, (x, y): (i16, i16)) -> Result<SequenceNumber, ReplyError> {
        let to = self.root.root;
        let cookie = self.connection.warp_pointer(NONE, to, 0, 0, 0, 0, x, y)?;
        let number = cookie.sequence_number();
        drop(cookie);
        self.connection.flush()?;
        Ok(number)
    }

    fn give_back(&self) {
        let all = || -> Result<(), ReplyError> {
            drop(self.connection.ungrab_keyboard(CURRENT_TIME)?);
            drop(self.connection.ungrab_pointer(CURRENT_TIME)?);
            drop(self.connection.destroy_window(self.window)?);
            self.warp(self.before)?;
            Ok(())
        };
        // If it fails the server is gone, and nothing is held.
        let _ = all();
    }
}

/// Reads events, in a thread of its own.
struct Reader {
    grab: Arc<Grab>,
    keymap: Keymap,
    tracker: Tracker,
    combination: Combination,
    /// Keys that went down since the start.
    down: [bool; 256],
    sender: mpsc::Sender<Result<Captured, CaptureError>>,
}

impl Reader {
    fn run(mut self) {
        if let Err(error) = self.read() {
            let _ = self.sender.blocking_send(Err(error.into()));
        }
    }

    /// Until the capture is dropped.
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
        let repeated = std::mem::replace(&mut self.down[usize::from(keycode)], true);
        if self.combination.is_pressed(self.keymap.label(keycode), state) {
            return Some(Captured::LetGo);
        }
        let keysym = self.keymap.keysym(keycode, state)?;
        // A key that is held repeats by itself where it is put in. What a lock changes here is in the
        // keysyms already.
        if repeated || is_lock(keysym) {
            return None;
        }
        Some(Captured::Event(Event::KeyDown { key: keycode, keysym }))
    }

    fn released(&mut self, keycode: u8) -> Option<Captured> {
        let was_down = std::mem::take(&mut self.down[usize::from(keycode)]);
        was_down.then_some(Captured::Event(Event::KeyUp { key: keycode }))
    }
}

fn button(button: u8, down: bool) -> Option<Captured> {
    let known = (1..=MAX_BUTTON).contains(&button);
    known.then_some(Captured::Event(Event::Button { button, down }))
}

/// Tries again for a while what another program may keep to itself for a moment.
fn retry(
    what: &'static str,
    grab: impl Fn() -> Result<GrabStatus, ReplyError>,
) -> Result<(), CaptureError> {
    let end = Instant::now() + PATIENCE;
    loop {
        if grab()? == GrabStatus::SUCCESS {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(CaptureError::Busy(what));
        }
        thread::sleep(STEP);
    }
}

/// Keys that are held shall not seem to go up in between (The X Keyboard Extension, section 4.1.2).
/// Whoever uses the extension hears of a new mapping by its events alone. Without the extension held keys
/// repeat, and everything works all the same.
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
    let (clear, parts) = (xkb::EventType::from(0u8), xkb::MapPart::from(0u8));
    let details = xkb::SelectEventsAux::new();
    connection.xkb_select_events(device, clear, events, parts, parts, &details)?.check()
}

fn keys_are_down(connection: &RustConnection) -> Result<bool, ReplyError> {
    let keys = connection.query_keymap()?.reply()?.keys;
    Ok(keys.iter().any(|bits| *bits != 0))
}

fn position(connection: &RustConnection, root: Window) -> Result<(i16, i16), ReplyError> {
    let pointer = connection.query_pointer(root)?.reply()?;
    Ok((pointer.root_x, pointer.root_y))
}

/// A window that nobody sees, whose end is told.
fn waker(connection: &RustConnection, root: Window) -> Result<Window, ReplyOrIdError> {
    let window = connection.generate_id()?;
    let told = CreateWindowAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
    let kind = WindowClass::INPUT_ONLY;
    let visual = COPY_FROM_PARENT;
    drop(connection.create_window(0, window, root, -1, -1, 1, 1, 0, kind, visual, &told)?);
    Ok(window)
}

/// A picture for the pointer in which no pixel is set.
fn invisible(connection: &RustConnection, root: Window) -> Result<Cursor, ReplyOrIdError> {
    let (pixmap, context) = (connection.generate_id()?, connection.generate_id()?);
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
