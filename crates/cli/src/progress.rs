//! Progress bars, on a terminal only. They are removed when they are dropped.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use levada_core::{format_duration, format_size};
use unicode_width::UnicodeWidthStr;

use crate::output::{Screen, cut, plain};

/// The columns of the bar itself.
const BAR: usize = 30;
/// The columns that a name keeps when the line is too long; the end of the line is cut then.
const MIN_NAME: usize = 12;

/// What is counted.
#[derive(Clone, Copy)]
enum Unit {
    /// Bytes of a package.
    Bytes,
    /// Bytes of a share, with the remaining time.
    Share,
    Items,
}

/// A bar that is removed when it is dropped.
pub struct Progress {
    bar: ProgressBar,
    note: Arc<Mutex<String>>,
}

impl Progress {
    /// A bar for `length` bytes of a package.
    pub fn of_bytes(what: &str, length: u64) -> Self {
        Self::new(what, length, Unit::Bytes)
    }

    /// A bar for `length` items.
    pub fn of_items(what: &str, length: u64) -> Self {
        Self::new(what, length, Unit::Items)
    }

    /// A bar for `length` bytes of a share.
    pub fn of_share(what: &str, length: u64) -> Self {
        Self::new(what, length, Unit::Share)
    }

    /// Sets what is shown at the end of the bar of a share.
    pub fn set_note(&self, note: &str) {
        *lock(&self.note) = plain(note);
        self.bar.tick();
    }

    fn new(what: &str, length: u64, unit: Unit) -> Self {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        let note = Arc::new(Mutex::new(String::new()));
        if let Ok(style) = ProgressStyle::with_template("{line}") {
            let name = plain(what);
            let note = note.clone();
            // The template language cannot cut a line that has more than one part of variable
            // length, and the library draws a line that wraps once more at each refresh.
            let draw = move |state: &ProgressState, output: &mut dyn Write| {
                // At each refresh: the user may change the terminal's width.
                let columns = Screen::error().columns.unwrap_or(usize::MAX);
                let _ = output.write_str(&line(&name, &counts(state, unit), &lock(&note), columns));
            };
            bar.set_style(style.with_key("line", draw));
        }
        Self { bar, note }
    }

    /// Sets the number of bytes or items that are done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn lock(note: &Mutex<String>) -> MutexGuard<'_, String> {
    note.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bar, and the numbers after it.
fn counts(state: &ProgressState, unit: Unit) -> String {
    let done = state.pos();
    let all = state.len().unwrap_or_default();
    let filled = (state.fraction() * BAR as f32) as usize;
    let head = if filled < BAR { ">" } else { "" };
    let bar = format!("{:BAR$}", format!("{}{head}", "=".repeat(filled.min(BAR))));
    if let Unit::Items = unit {
        return format!("[{bar}] {done}/{all}");
    }
    let rate = format_size(state.per_sec() as u64);
    let text = format!("[{bar}] {}/{} {rate}/s", format_size(done), format_size(all));
    match unit {
        Unit::Share => format!("{text}, {} left", format_duration(whole_seconds(state.eta()))),
        _ => text,
    }
}

fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

/// One line of at most `columns` columns: the name is cut first, down to [`MIN_NAME`] columns, then
/// the end.
fn line(name: &str, counts: &str, note: &str, columns: usize) -> String {
    let space = columns.saturating_sub(counts.width() + note.width() + 1).max(MIN_NAME);
    cut(&format!("{} {counts}{note}", cut(name, space)), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_the_terminal_is_wide() {
        let counts = "[=====>] 5.0 MB/10.0 MB";
        let names = ["a", "a-name-of-many-characters.mkv", "映画の名前はとても長い.mkv"];
        for (name, note) in names.iter().flat_map(|name| [(name, ""), (name, ", 3 peers")]) {
            for columns in 1..100 {
                let line = line(name, counts, note, columns);
                assert!(line.width() <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn the_name_is_cut_first_and_then_the_end() {
        let name = "a-name-of-many-characters.mkv";
        assert_eq!(line(name, "[=>] 1/2", ", note", 60), format!("{name} [=>] 1/2, note"));
        assert_eq!(line(name, "[=>] 1/2", ", note", 30), "a-name-of-many… [=>] 1/2, note");
        assert_eq!(line(name, "[=>] 1/2", ", note", 20), "a-name-of-m… [=>] 1…");
        assert_eq!(line("映画の名前", "[=>] 1/2", "", 16), "映画の名前 [=>]…");
    }
}
