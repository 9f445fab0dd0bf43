//! Virtual X servers, on which keys are pressed or events observed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::damage::{ConnectionExt as _, ReportLevel};
use x11rb::protocol::xproto::{
    ConnectionExt as _, CreateWindowAux, EventMask, InputFocus, KEY_PRESS_EVENT, KEY_RELEASE_EVENT,
    MOTION_NOTIFY_EVENT, MapState, Window, WindowClass,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;
use x11rb::{COPY_FROM_PARENT, CURRENT_TIME, NONE};

use crate::program::Side;
use crate::testbed::Testbed;

/// The width and height of the screen, in pixels.
pub const SIZE: (u16, u16) = (1024, 768);
/// The keysym of the letter a.
const LETTER: u32 = 0x61;
/// The least width and height of a terminal's window, in pixels.
const LEAST: u16 = 100;
/// The time limit for a screen to become idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The events that are observed.
#[derive(Clone, Copy)]
pub enum Observe {
    /// None.
    Nothing,
    /// Presses and releases of keys, in a window with the focus.
    Keys,
    /// Drawing anywhere on the screen.
    Drawing,
}

/// An X server, killed when dropped.
pub struct Server {
    child: Child,
    /// The display, such as `:5`.
    pub display: String,
    connection: RustConnection,
    root: Window,
    key: u8,
    seen: Receiver<Instant>,
}

impl Server {
    /// Starts an X server.
    pub fn start(testbed: &Testbed, side: Side, observe: Observe) -> anyhow::Result<Self> {
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-nolisten", "tcp", "-noreset"]);
        command.args(["+extension", "Composite", "+extension", "RANDR", "-screen", "0"]);
        command.arg(format!("{}x{}x24+32", SIZE.0, SIZE.1));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = side.run(testbed, move || command.spawn())?.context("start Xvfb")?;
        let mut started = Started(Some(child));
        let display = started.display()?;
        let (connection, index) =
            side.run(testbed, || RustConnection::connect(Some(&display)))??;
        let root = connection.setup().roots.get(index).context("a screen without a root")?.root;
        let key = key(&connection)?;
        let (tell, seen) = mpsc::channel();
        if !matches!(observe, Observe::Nothing) {
            let (events, _) = side.run(testbed, || RustConnection::connect(Some(&display)))??;
            match observe {
                Observe::Drawing => observe_drawing(&events, root)?,
                _ => observe_keys(&events, root)?,
            }
            let body = move || forward_events(&events, &tell);
            thread::Builder::new().name("screen".into()).spawn(body).context("start a thread")?;
        }
        let child = started.0.take().context("it is there")?;
        Ok(Self { child, display, connection, root, key, seen })
    }

    /// Presses or releases the key.
    pub fn key(&self, down: bool) -> anyhow::Result<()> {
        let kind = if down { KEY_PRESS_EVENT } else { KEY_RELEASE_EVENT };
        self.fake(kind, self.key, NONE, (0, 0))
    }

    /// Moves the pointer.
    pub fn move_pointer(&self, x: i16, y: i16) -> anyhow::Result<()> {
        self.fake(MOTION_NOTIFY_EVENT, 0, self.root, (x, y))
    }

    fn fake(&self, kind: u8, detail: u8, root: Window, (x, y): (i16, i16)) -> anyhow::Result<()> {
        drop(self.connection.xtest_fake_input(kind, detail, CURRENT_TIME, root, x, y, 0)?);
        Ok(self.connection.flush()?)
    }

    /// The time of the next observed event, if it comes within `time`.
    pub fn next_event(&self, time: Duration) -> Option<Instant> {
        self.seen.recv_timeout(time).ok()
    }

    /// Waits until no event was observed for `time`.
    pub fn wait_until_idle(&self, time: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.next_event(time).is_some() {
            ensure!(start.elapsed() < IDLE_TIMEOUT, "the screen {} is never idle", self.display);
        }
        Ok(())
    }

    /// A visible window of a program.
    pub fn window(&self) -> anyhow::Result<Option<Window>> {
        let tree = self.connection.query_tree(self.root)?.reply()?;
        for window in tree.children {
            // The window may have been closed meanwhile.
            let Ok(attributes) = self.connection.get_window_attributes(window)?.reply() else {
                continue;
            };
            let Ok(size) = self.connection.get_geometry(window)?.reply() else { continue };
            let large = size.width.min(size.height) >= LEAST;
            if large && attributes.map_state == MapState::VIEWABLE {
                return Ok(Some(window));
            }
        }
        Ok(None)
    }

    /// Focuses this window and moves the pointer onto it.
    pub fn focus(&self, window: Window) -> anyhow::Result<()> {
        let area = self.connection.get_geometry(window)?.reply()?;
        let middle = |start: i16, size: u16| start.saturating_add((size / 2).cast_signed());
        self.move_pointer(middle(area.x, area.width), middle(area.y, area.height))?;
        focus(&self.connection, window)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A started server, killed if its setup fails.
struct Started(Option<Child>);

impl Started {
    /// The display that the server has chosen.
    fn display(&mut self) -> anyhow::Result<String> {
        let output = self.0.as_mut().and_then(|child| child.stdout.take());
        let mut line = String::new();
        BufReader::new(output.context("Xvfb has no output")?).read_line(&mut line)?;
        if line.trim().is_empty() {
            bail!("Xvfb does not start");
        }
        Ok(format!(":{}", line.trim()))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The keycode of [`LETTER`].
fn key(connection: &RustConnection) -> anyhow::Result<u8> {
    let setup = connection.setup();
    let first = setup.min_keycode;
    let count = setup.max_keycode.saturating_sub(first).saturating_add(1);
    let mapping = connection.get_keyboard_mapping(first, count)?.reply()?;
    let columns = usize::from(mapping.keysyms_per_keycode).max(1);
    let mut rows = mapping.keysyms.chunks(columns);
    let index = rows.position(|row| row.first() == Some(&LETTER)).context("no key has an a")?;
    Ok(first.saturating_add(u8::try_from(index)?))
}

fn observe_keys(connection: &RustConnection, root: Window) -> anyhow::Result<()> {
    let window = connection.generate_id()?;
    let both = EventMask::KEY_PRESS | EventMask::KEY_RELEASE;
    let told = CreateWindowAux::new().event_mask(both);
    let kind = WindowClass::INPUT_OUTPUT;
    let visual = COPY_FROM_PARENT;
    connection.create_window(0, window, root, 0, 0, 200, 200, 0, kind, visual, &told)?.check()?;
    connection.map_window(window)?.check()?;
    focus(connection, window)
}

fn observe_drawing(connection: &RustConnection, root: Window) -> anyhow::Result<()> {
    connection.damage_query_version(1, 1)?.reply()?;
    let damage = connection.generate_id()?;
    connection.damage_create(damage, root, ReportLevel::RAW_RECTANGLES)?.check()?;
    Ok(())
}

fn focus(connection: &RustConnection, window: Window) -> anyhow::Result<()> {
    connection.set_input_focus(InputFocus::PARENT, window, CURRENT_TIME)?.check()?;
    Ok(())
}

/// Sends the time of each observed event, until the server ends or the receiver is dropped.
fn forward_events(connection: &RustConnection, tell: &Sender<Instant>) {
    while let Ok(event) = connection.wait_for_event() {
        let now = Instant::now();
        let counts =
            matches!(event, Event::KeyPress(_) | Event::KeyRelease(_) | Event::DamageNotify(_));
        if counts && tell.send(now).is_err() {
            return;
        }
    }
}
