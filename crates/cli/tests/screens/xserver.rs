//! X servers without hardware (Xvfb), and what they show.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ConnectionExt as _, GetGeometryReply, ImageFormat, InputFocus, Window,
};
use x11rb::rust_connection::RustConnection;
use x11rb::{CURRENT_TIME, NONE};

use super::picture::Picture;
use crate::support::{Permit, eventually, shared};

/// An X server; killed when dropped.
pub struct XServer {
    child: Child,
    /// Such as `:5`.
    pub display: String,
    connection: RustConnection,
    root: Window,
    _permit: Option<Arc<Permit>>,
}

impl XServer {
    /// Starts a server with 24 bits per pixel.
    pub fn start(width: u16, height: u16) -> Self {
        let permit = shared();
        let mut child = Command::new("Xvfb")
            .args(["-displayfd", "1", "-nolisten", "tcp", "-noreset", "-screen", "0"])
            .arg(format!("{width}x{height}x24"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb is not installed; scripts/test --all installs it");
        let mut number = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let display = format!(":{}", number.trim());
        let (connection, index) = RustConnection::connect(Some(&display)).unwrap();
        let root = connection.setup().roots[index].root;
        Self { child, display, connection, root, _permit: permit }
    }

    /// A command that uses this screen.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DISPLAY", &self.display).env_remove("XAUTHORITY").stdin(Stdio::null());
        command
    }

    /// Runs xdotool with these arguments.
    pub fn xdotool(&self, line: &str) {
        let done = self.command("xdotool").args(line.split_whitespace()).status().unwrap();
        assert!(done.success(), "xdotool {line}");
    }

    /// Types `text`.
    pub fn types(&self, text: &str) {
        let words = ["type", "--delay", "20", text];
        assert!(self.command("xdotool").args(words).status().unwrap().success());
    }

    /// Sets the keyboard layout.
    pub fn layout(&self, name: &str) {
        assert!(self.command("setxkbmap").arg(name).status().unwrap().success());
    }

    /// The whole screen.
    pub fn picture(&self) -> Picture {
        let size = self.connection.get_geometry(self.root).unwrap().reply().unwrap();
        let width = size.width;
        let height = size.height;
        let all = u32::MAX;
        let format = ImageFormat::Z_PIXMAP;
        let image = self.connection.get_image(format, self.root, 0, 0, width, height, all);
        let data = image.unwrap().reply().unwrap().data;
        // Four bytes per pixel: blue, green, red, unused.
        let pixels = data.chunks_exact(4).map(|pixel| [pixel[2], pixel[1], pixel[0]]);
        Picture::new(width.into(), pixels.collect())
    }

    /// The visible windows, with their titles.
    pub fn windows(&self) -> Vec<(Window, String)> {
        let tree = self.connection.query_tree(self.root).unwrap().reply().unwrap();
        let seen = tree.children.into_iter().filter(|window| self.is_seen(*window));
        seen.map(|window| (window, self.title(window))).collect()
    }

    /// The visible windows with sizes and positions, for error messages.
    pub fn described(&self) -> Vec<String> {
        let describe = |(window, title): (Window, String)| {
            let place = self.connection.get_geometry(window).unwrap().reply();
            let Ok(GetGeometryReply { x, y, width, height, .. }) = place else { return title };
            format!("{title} {width}x{height}+{x}+{y}")
        };
        self.windows().into_iter().map(describe).collect()
    }

    /// Waits for a window whose title contains `text`.
    #[track_caller]
    pub fn window(&self, text: &str) -> Window {
        let mut found = None;
        eventually(&format!("a window called {text}"), || {
            found = self.windows().into_iter().find(|(_, title)| title.contains(text));
            found.is_some()
        });
        found.unwrap().0
    }

    /// Waits until no window has such a title.
    #[track_caller]
    pub fn no_window(&self, text: &str) {
        eventually(&format!("no window called {text}"), || {
            self.windows().iter().all(|(_, title)| !title.contains(text))
        });
    }

    /// Moves pointer and keyboard focus to a window.
    pub fn focus(&self, window: Window) {
        let place = self.connection.get_geometry(window).unwrap().reply().unwrap();
        let middle = (place.width / 2, place.height / 2);
        let x = middle.0.try_into().unwrap();
        let y = middle.1.try_into().unwrap();
        self.connection.warp_pointer(NONE, window, 0, 0, 0, 0, x, y).unwrap().check().unwrap();
        let focus = InputFocus::PARENT;
        let set = self.connection.set_input_focus(focus, window, CURRENT_TIME).unwrap();
        set.check().unwrap();
    }

    /// Whether any key is down.
    pub fn keys_are_down(&self) -> bool {
        let keys = self.connection.query_keymap().unwrap().reply().unwrap().keys;
        keys.iter().any(|bits| *bits != 0)
    }

    /// The position of the pointer, and the pressed buttons and modifiers.
    pub fn pointer(&self) -> ((i16, i16), u16) {
        let pointer = self.connection.query_pointer(self.root).unwrap().reply().unwrap();
        ((pointer.root_x, pointer.root_y), pointer.mask.into())
    }

    fn is_seen(&self, window: Window) -> bool {
        use x11rb::protocol::xproto::MapState;
        let attributes = self.connection.get_window_attributes(window).unwrap().reply();
        // The window may have been closed since.
        attributes.is_ok_and(|attributes| attributes.map_state == MapState::VIEWABLE)
    }

    fn title(&self, window: Window) -> String {
        let utf8 = self.connection.intern_atom(false, b"_NET_WM_NAME").unwrap().reply().unwrap();
        [utf8.atom, AtomEnum::WM_NAME.into()]
            .into_iter()
            .filter_map(|property| {
                let kind = AtomEnum::ANY;
                let value = self.connection.get_property(false, window, property, kind, 0, 256);
                let value = value.unwrap().reply().ok()?.value;
                Some(String::from_utf8_lossy(&value).into_owned())
            })
            .find(|title| !title.is_empty())
            .unwrap_or_default()
    }
}

impl Drop for XServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a file exists and its content is `enough`: the content.
#[track_caller]
pub fn content(file: &Path, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    eventually(&format!("{}", file.display()), || {
        text = std::fs::read_to_string(file).unwrap_or_default();
        enough(&text)
    });
    text
}
