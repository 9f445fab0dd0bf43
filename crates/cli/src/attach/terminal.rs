//! The client's terminal: its size and its raw mode.

use std::io;

use levada_service::stdio::Window;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use crate::failure::Failure;

/// The size of the terminal, if there is one.
pub fn window() -> Option<Window> {
    let size = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout())).ok()?;
    let known = size.ws_row > 0 && size.ws_col > 0;
    known.then_some(Window { rows: size.ws_row, columns: size.ws_col })
}

/// Raw mode: every key is input for the service, also Ctrl-C. Dropping it restores the previous
/// mode.
pub(super) struct RawMode(Termios);

impl RawMode {
    /// `None` if standard input is no terminal.
    pub(super) fn enter() -> Result<Option<Self>, Failure> {
        let input = io::stdin();
        if !isatty(&input) {
            return Ok(None);
        }
        let fail = |error| Failure::local(format!("cannot use the terminal: {error}"));
        let before = tcgetattr(&input).map_err(fail)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Drain, &raw).map_err(fail)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // `Now`, not `Drain`: output that is stopped (Ctrl-S) must not block the exit.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
