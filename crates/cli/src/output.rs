//! Data goes to standard output, everything else to standard error.

use crate::failure::{Failure, Outcome};
use levada_core::UnixTime;
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The version of every `--json` object. It grows when a key changes its meaning or goes away.
const SCHEMA: u64 = 1;

/// Prints one line of data.
pub fn data(line: impl Display) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(Failure::output)
}

/// Prints bytes as they are.
pub fn bytes(bytes: &[u8]) -> Outcome {
    let mut output = io::stdout().lock();
    output.write_all(bytes).and_then(|()| output.flush()).map_err(Failure::output)?;
    Ok(0)
}

/// Prints one line for a person. That nobody reads it is no error.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints `value`, an object, with the version of its schema.
pub fn json(value: Value) -> Result<(), Failure> {
    let mut object = serde_json::Map::new();
    object.insert("schema".into(), SCHEMA.into());
    if let Value::Object(entries) = value {
        object.extend(entries);
    }
    data(Value::Object(object))
}

/// Prints rows of a name and a value, the values in one column.
pub fn table(rows: &[(&str, String)]) -> Result<(), Failure> {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().try_for_each(|(name, value)| data(format_args!("{name:width$}  {value}")))
}

/// Prints rows under a heading, every column as wide as its widest cell.
pub fn columns(heading: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    let mut widths: Vec<usize> = heading.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    data(line(heading.to_vec()))?;
    rows.iter().try_for_each(|row| data(line(row.iter().map(String::as_str).collect())))
}

/// Text of others as one harmless line: what would steer the terminal is written as an escape.
pub fn plain(text: &str) -> String {
    let is_harmful = |c: char| c.is_control() || is_direction(c);
    text.chars().fold(String::new(), |mut out, c| {
        if is_harmful(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// Characters that change the direction of writing make a text look like another (Unicode UAX 9).
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A time in RFC 3339, in UTC.
pub fn time(time: UnixTime) -> String {
    if time == UnixTime::NEVER {
        return "never".into();
    }
    i64::try_from(time.0)
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{} seconds after 1970", time.0))
}

/// Whether somebody is there to answer a question.
pub fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a yes-or-no question; `None` if nobody is there to answer.
pub fn ask(question: &str) -> Option<bool> {
    if !is_attended() {
        return None;
    }
    let _ = write!(io::stderr().lock(), "{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).ok()?;
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{202e}d");
        assert_eq!(plain("Grüße"), "Grüße");
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(time(UnixTime(0)), "1970-01-01T00:00:00Z");
        assert_eq!(time(UnixTime::NEVER), "never");
        assert!(time(UnixTime(u64::MAX - 1)).contains("after 1970"));
    }
}
