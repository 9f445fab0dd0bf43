//! Progress bars: on a terminal only, and gone when they are full.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::plain;

/// What is shown of a package.
const BYTES: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
/// What is shown of many things.
const THINGS: &str = "{msg} [{bar:30}] {pos}/{len}";

/// A bar that goes away when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// For `length` bytes of a package.
    pub fn of_bytes(what: &str, length: u64) -> Self {
        Self::new(what, length, BYTES)
    }

    /// For `length` things.
    pub fn of_things(what: &str, length: u64) -> Self {
        Self::new(what, length, THINGS)
    }

    fn new(what: &str, length: u64, template: &str) -> Self {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(plain(what));
        Self(bar)
    }

    /// So many are done.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
