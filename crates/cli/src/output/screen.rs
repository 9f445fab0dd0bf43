//! The terminal that output is written to: its width, and whether it shows colours.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns of a terminal that does not tell their number.
const COLUMNS: usize = 80;

/// A terminal, or a file or pipe.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// The columns of a terminal; `None` for a file or a pipe, whose lines have any length.
    pub columns: Option<usize>,
    /// Returns true if bold text and colours are shown.
    pub is_colored: bool,
}

impl Screen {
    /// Standard output.
    pub fn output() -> Self {
        Self::of(io::stdout())
    }

    /// Standard error.
    pub fn error() -> Self {
        Self::of(io::stderr())
    }

    fn of(stream: impl AsFd + IsTerminal) -> Self {
        if !stream.is_terminal() {
            return Self { columns: None, is_colored: false };
        }
        let size = tcgetwinsize(&stream).map(|size| usize::from(size.ws_col)).ok();
        let columns = size.filter(|columns| *columns > 0).unwrap_or(COLUMNS);
        Self { columns: Some(columns), is_colored: allows_colors() }
    }
}

/// Returns true if the environment permits colours on a terminal: NO_COLOR (no-color.org) is unset
/// or empty, and TERM is not `dumb`.
fn allows_colors() -> bool {
    let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
    variable("NO_COLOR").is_empty() && variable("TERM") != OsStr::new("dumb")
}

/// Returns `text` in at most `columns` columns; one that is cut ends with `…`.
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut left = columns.saturating_sub(1);
    for c in text.chars() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or_default()) else { break };
        short.push(c);
        left = rest;
    }
    if columns > 0 {
        short.push('…');
    }
    short
}

/// Returns `text` in lines of at most `columns` columns, divided at spaces. A longer word has a
/// line to itself: a terminal wraps it, and its user can copy it.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    if text.width() <= columns {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.width() + 1 + word.width() <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_fits_and_ends_with_an_ellipsis() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("映画の名前", 6), "映画…");
        assert_eq!([cut("abc", 1), cut("abc", 0)], ["…", ""]);
    }

    #[test]
    fn a_text_is_wrapped_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a-long-word b", 4), ["a-long-word", "b"]);
        assert_eq!(wrap("short", 9), ["short"]);
    }
}
