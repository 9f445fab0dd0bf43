//! Shows a page on a terminal.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGINT;

use crate::failure::{Failure, Outcome};
use crate::output;

/// Shows `page` by man; without it `text` by PAGER, or at last `text` alone.
pub(super) fn show(page: &[u8], text: &str) -> Outcome {
    // Ctrl-C is for the pager, which would otherwise stay on the terminal without this process.
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))
        .map_err(Failure::local)?;
    if read_by(Command::new("man").args(["-l", "-"]), page) {
        return Ok(0);
    }
    let pager = env::var_os("PAGER").filter(|pager| !pager.is_empty());
    if let Some(pager) = pager
        && read_by(Command::new("sh").arg("-c").arg(pager), text.as_bytes())
    {
        return Ok(0);
    }
    output::bytes(text.as_bytes())
}

/// Runs a program that reads `text` from its standard input; returns false if it cannot be started
/// or fails.
fn read_by(program: &mut Command, text: &[u8]) -> bool {
    let Ok(mut child) = program.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // The user may end a pager before it has read everything.
        let _ = input.write_all(text);
    }
    child.wait().is_ok_and(|status| status.success())
}
