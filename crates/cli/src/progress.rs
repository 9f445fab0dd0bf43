//! Progress bars, on a terminal only. They are removed when they are dropped.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::plain;

/// The template for a package.
const BYTES: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
/// The template for a share.
const SHARE: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left{prefix}";
/// The template for a number of items.
const ITEMS: &str = "{msg} [{bar:30}] {pos}/{len}";

/// A bar that is removed when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar for `length` bytes of a package.
    pub fn of_bytes(what: &str, length: u64) -> Self {
        Self::new(what, length, BYTES)
    }

    /// A bar for `length` items.
    pub fn of_items(what: &str, length: u64) -> Self {
        Self::new(what, length, ITEMS)
    }

    /// A bar for `length` bytes of a share.
    pub fn of_share(what: &str, length: u64) -> Self {
        Self::new(what, length, SHARE)
    }

    /// Sets what is shown at the end of the bar of a share.
    pub fn set_note(&self, note: &str) {
        self.0.set_prefix(plain(note));
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

    /// Sets the number of bytes or items that are done.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
