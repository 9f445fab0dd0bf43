//! A program on a terminal of its own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use pty_process::{OwnedWritePty, Size};
use rustix::termios::{LocalModes, SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::signal::unix::Signal as Signals;

use super::process::{Input, Process};
use crate::program::{Group, Scope};
use crate::stdio::Window;

/// The side of a terminal that a person would sit at.
pub(super) struct Terminal {
    writer: OwnedWritePty,
    /// The same terminal once more: the writer does not show its descriptor.
    control: OwnedFd,
    /// Whether something was typed since the last newline.
    in_line: bool,
}

/// Starts `command` as the leader of a session with a new terminal.
pub(super) fn start(command: Command, window: Window, children: Signals) -> io::Result<Process> {
    let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
    pty.resize(Size::new(window.rows, window.columns)).map_err(io::Error::other)?;
    let control = pty.as_fd().try_clone_to_owned()?;
    let child = pty_process::Command::from(command).spawn(pts).map_err(plain)?;
    let mut group = Group::new(child, Scope::Session, children)?;
    let (reader, writer) = pty.into_split();
    group.output = Some(Box::new(reader));
    let terminal = Terminal { writer, control, in_line: false };
    Ok(Process { input: Input::Terminal(terminal), group })
}

/// The system's error without the library's words around it.
fn plain(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl Terminal {
    /// Types `bytes`.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(last) = bytes.last() {
            self.in_line = *last != b'\n' && *last != b'\r';
        }
        self.writer.write_all(bytes).await
    }

    /// Types the terminal's end-of-file character, if the program reads by lines. In the middle of a
    /// line it only hands over what was typed so far, hence twice.
    pub(super) async fn end(&mut self) -> io::Result<()> {
        let modes = tcgetattr(&self.control)?;
        if !modes.local_modes.contains(LocalModes::ICANON) {
            return Ok(());
        }
        let character = modes.special_codes[SpecialCodeIndex::VEOF];
        let times = if self.in_line { 2 } else { 1 };
        self.writer.write_all(&[character; 2][..times]).await
    }

    /// The program is told by SIGWINCH.
    pub(super) fn resize(&self, window: Window) {
        let size =
            Winsize { ws_row: window.rows, ws_col: window.columns, ws_xpixel: 0, ws_ypixel: 0 };
        // It fails only if the terminal is gone.
        let _ = tcsetwinsize(&self.control, size);
    }
}
