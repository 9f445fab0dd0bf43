//! The terminal of a program.

use std::io;

use levada_service::stdio::Window;
use rustix::termios::{LocalModes, SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;

/// The master side of a pseudoterminal.
pub(super) struct Terminal {
    master: pipe::Sender,
    /// Whether there is input since the last newline.
    in_line: bool,
}

impl Terminal {
    pub(super) fn new(master: pipe::Sender) -> Self {
        Self { master, in_line: false }
    }

    /// Writes `bytes` as typed input.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(last) = bytes.last() {
            self.in_line = *last != b'\n' && *last != b'\r';
        }
        self.master.write_all(bytes).await
    }

    /// Writes the terminal's end-of-file character (VEOF, termios(3)), if the program reads by
    /// lines. In the middle of a line it only delivers the input so far, so it is written twice
    /// there.
    pub(super) async fn end(&mut self) -> io::Result<()> {
        let modes = tcgetattr(&self.master)?;
        if !modes.local_modes.contains(LocalModes::ICANON) {
            return Ok(());
        }
        let character = modes.special_codes[SpecialCodeIndex::VEOF];
        let times = if self.in_line { 2 } else { 1 };
        self.master.write_all(&[character; 2][..times]).await
    }

    /// Sets the size; the kernel notifies the program by SIGWINCH.
    pub(super) fn resize(&self, window: Window) {
        let size =
            Winsize { ws_row: window.rows, ws_col: window.columns, ws_xpixel: 0, ws_ypixel: 0 };
        // It fails only if the terminal is closed.
        let _ = tcsetwinsize(&self.master, size);
    }
}
