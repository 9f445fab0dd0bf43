//! Data goes to standard output, everything else to standard error. Nothing that is printed here steers a terminal, wherever
//! it came from: what is not printable is escaped on its way out.

use crate::failure::{Failure, Outcome};
use levada_core::UnixTime;
use levada_core::printable::is_printable;
use serde_json::Value;
use std::fmt::{self, Display, Write as _};
use std::io::{self, IsTerminal, Write};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Text of another machine on one line: what is not printable is written as an escape, a line end too.
pub use levada_core::printable::escape as plain;

/// The version of every `--json` object. It grows when a key changes its meaning or goes away.
const SCHEMA: u64 = 1;

/// Prints one line of data.
pub fn data(line: impl Display) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", Shown(line, Escapes::Text))
        .and_then(|()| output.flush())
        .map_err(Failure::output)
}

/// Prints a JSON document of another machine: as it is to a file or a pipe, with escapes (RFC 8259 section 7) to a terminal.
pub fn document(document: &[u8]) -> Outcome {
    if !io::stdout().is_terminal() {
        return bytes(document);
    }
    bytes(escape_json(&String::from_utf8_lossy(document)).as_bytes())
}

/// Prints bytes as they are: what was made here, and the output of a program.
pub fn bytes(bytes: &[u8]) -> Outcome {
    let mut output = io::stdout().lock();
    output.write_all(bytes).and_then(|()| output.flush()).map_err(Failure::output)?;
    Ok(0)
}

/// Prints one line, or several, for a person. That it cannot be written is no error.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", Shown(line, Escapes::Text));
}

/// Prints `value`, an object, with the version of its schema, on one line; what is not printable in it is escaped.
pub fn json(value: Value) -> Result<(), Failure> {
    let mut object = serde_json::Map::new();
    object.insert("schema".into(), SCHEMA.into());
    if let Value::Object(entries) = value {
        object.extend(entries);
    }
    data(escape_json(&Value::Object(object).to_string()))
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

/// How a character that is not printable is written.
#[derive(Clone, Copy)]
enum Escapes {
    /// As in Rust: `\u{1b}`.
    Text,
    /// As in JSON (RFC 8259 section 7): `\u001b`; two of them beyond U+FFFF.
    Json,
}

/// What is printed, with line ends and tabs as they are, and escapes for all else that is not printable.
struct Shown<T>(T, Escapes);

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f, self.1), "{}", self.0)
    }
}

struct Escaper<'a, W>(&'a mut W, Escapes);

impl<W: fmt::Write> fmt::Write for Escaper<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|c| !(is_printable(c) || matches!(c, '\n' | '\t'))) {
            let (before, from) = rest.split_at(at);
            self.0.write_str(before)?;
            let mut behind = from.chars();
            if let Some(c) = behind.next() {
                self.write_escape(c)?;
            }
            rest = behind.as_str();
        }
        self.0.write_str(rest)
    }
}

impl<W: fmt::Write> Escaper<'_, W> {
    fn write_escape(&mut self, c: char) -> fmt::Result {
        match self.1 {
            Escapes::Text => write!(self.0, "{}", c.escape_default()),
            Escapes::Json => {
                let mut units = [0; 2];
                let units = c.encode_utf16(&mut units);
                units.iter().try_for_each(|unit| write!(self.0, "\\u{unit:04x}"))
            }
        }
    }
}

/// A JSON text whose strings have escapes for what is not printable. Outside of strings it has line ends and tabs only, or it
/// is none: then it is harmless all the same.
fn escape_json(text: &str) -> String {
    Shown(text, Escapes::Json).to_string()
}

/// Standard error for the log. A log line has text of other machines; the escapes that colour it are the log's own, and the
/// log has escaped those of others (tracing-subscriber 0.3.20).
#[derive(Clone, Copy)]
pub struct LogOutput {
    is_colored: bool,
    escapes: Escapes,
}

impl LogOutput {
    /// For lines of text, with colours or without.
    pub fn text(is_colored: bool) -> Self {
        Self { is_colored, escapes: Escapes::Text }
    }

    /// For lines of JSON.
    pub fn json() -> Self {
        Self { is_colored: false, escapes: Escapes::Json }
    }

    fn shown(self, line: &str) -> String {
        if !self.is_colored {
            return Shown(line, self.escapes).to_string();
        }
        let parts: Vec<String> =
            line.split('\x1b').map(|part| Shown(part, self.escapes).to_string()).collect();
        parts.join("\x1b")
    }
}

impl Write for LogOutput {
    /// Takes whole lines, as the log writes them.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shown = self.shown(&String::from_utf8_lossy(line));
        io::stderr().lock().write_all(shown.as_bytes()).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
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
    let _ = write!(io::stderr().lock(), "{} [y/N] ", Shown(question, Escapes::Text));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).ok()?;
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{202e}d");
        let lines = Shown("Grüße\n\ta\x1b]0;x\x07\u{9b}\u{202e}", Escapes::Text).to_string();
        assert_eq!(lines, "Grüße\n\ta\\u{1b}]0;x\\u{7}\\u{9b}\\u{202e}");
    }

    #[test]
    fn json_has_escapes_and_means_the_same() {
        for text in ["a\x1b[2J\x7f\u{9b}", "\u{202e}b", "\u{e0041}", "Grüße\n\t\"\\"] {
            let value = serde_json::json!({ text: [text] });
            let shown = escape_json(&value.to_string());
            assert!(shown.chars().all(is_printable), "{shown}");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }

    #[test]
    fn a_log_keeps_its_own_colours_and_nothing_else() {
        let line = "\x1b[32m INFO\x1b[0m refused \u{9b}2J\u{202e}\n";
        assert_eq!(
            LogOutput::text(true).shown(line),
            "\x1b[32m INFO\x1b[0m refused \\u{9b}2J\\u{202e}\n"
        );
        assert!(LogOutput::text(false).shown(line).starts_with("\\u{1b}[32m INFO"));
        assert_eq!(LogOutput::json().shown("{\"a\":\"\u{9b}\"}\n"), "{\"a\":\"\\u009b\"}\n");
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(time(UnixTime(0)), "1970-01-01T00:00:00Z");
        assert_eq!(time(UnixTime::NEVER), "never");
        assert!(time(UnixTime(u64::MAX - 1)).contains("after 1970"));
    }
}
