//! Reads a TOML document and records the position of each value for error messages.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use levada_core::closest;

use super::ConfigError;

/// The maximum size of a configuration or service file, in bytes.
pub const MAX_FILE: u64 = 1024 * 1024;

/// As [`read_file`], for a regular file: a FIFO without a writer would block every start.
pub(super) fn read_regular_file(file: &Path) -> Result<String, ConfigError> {
    match fs::metadata(file) {
        // A folder gives the error of reading it.
        Ok(found) if !found.is_file() && !found.is_dir() => {
            let source = io::Error::other("not a regular file");
            Err(ConfigError::Io { file: file.to_owned(), source })
        }
        _ => read_file(file),
    }
}

/// Reads a file of at most [`MAX_FILE`] bytes.
///
/// # Errors
/// [`ConfigError::Io`] if it cannot be read, or is longer.
pub fn read_file(file: &Path) -> Result<String, ConfigError> {
    let fail = |source| ConfigError::Io { file: file.to_owned(), source };
    let opened = File::open(file).map_err(fail)?;
    let mut text = String::new();
    opened.take(MAX_FILE + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > MAX_FILE {
        return Err(fail(io::Error::other(format!("it is longer than {MAX_FILE} bytes"))));
    }
    Ok(text)
}

/// Parses `text` and passes its root table to `read`.
pub(super) fn parse<T>(
    file: &Path,
    text: &str,
    read: impl FnOnce(&Section<'_>) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let document = Document { file, text };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        document.wrong(at, String::new(), error.message().to_owned())
    })?;
    read(&Section { document: &document, path: String::new(), at: 0, table: table.get_ref() })
}

struct Document<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Document<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn wrong(&self, at: usize, key: String, message: String) -> ConfigError {
        ConfigError::Wrong { file: self.file.to_owned(), line: self.line(at), key, message }
    }
}

/// A table and its position.
pub(super) struct Section<'a> {
    document: &'a Document<'a>,
    path: String,
    at: usize,
    table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    /// Refuses keys other than `known`; the error suggests the nearest of them.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), ConfigError> {
        for value in self.values() {
            if !known.contains(&value.name()) {
                return Err(value.wrong(unknown(value.name(), known)));
            }
        }
        Ok(())
    }

    /// All values, in the order of the file.
    pub(super) fn values(&self) -> Vec<Value<'a>> {
        let mut entries: Vec<_> = self.table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
            .into_iter()
            .map(|(key, value)| Value {
                document: self.document,
                key: join(&self.path, key.get_ref()),
                name: key.get_ref(),
                at: key.span().start,
                value: value.get_ref(),
            })
            .collect()
    }

    /// The value of the key `name`.
    pub(super) fn value(&self, name: &str) -> Option<Value<'a>> {
        self.values().into_iter().find(|value| value.name == name)
    }

    /// The value of the key `name`; if it is missing, an error with the `allowed` values.
    pub(super) fn required(&self, name: &str, allowed: &str) -> Result<Value<'a>, ConfigError> {
        self.value(name).ok_or_else(|| {
            let key = join(&self.path, name);
            self.document.wrong(self.at, key, format!("it is missing; it is {allowed}"))
        })
    }

    /// The path of the file.
    pub(super) fn file(&self) -> &Path {
        self.document.file
    }

    /// The line on which the table begins.
    pub(super) fn line(&self) -> usize {
        self.document.line(self.at)
    }

    /// The position of every key in this table and in inner tables, in the order of the file.
    pub(super) fn key_positions(&self) -> Vec<KeyPosition> {
        let mut positions = Vec::new();
        let mut tables = vec![self.table];
        while let Some(table) = tables.pop() {
            for (key, value) in table {
                positions.push(KeyPosition {
                    key: key.get_ref().to_string(),
                    line: self.document.line(key.span().start),
                    text: value.get_ref().as_str().map(str::to_owned),
                });
                let items = value.get_ref().as_array().into_iter().flatten();
                tables.extend(value.get_ref().as_table());
                tables.extend(items.filter_map(|item| item.get_ref().as_table()));
            }
        }
        positions.sort_by_key(|position| position.line);
        positions
    }

    /// A copy without positions.
    pub(super) fn to_table(&self) -> Result<toml::Table, ConfigError> {
        let mut table = toml::Table::new();
        for value in self.values() {
            table.insert(value.name.to_owned(), value.to_toml()?);
        }
        Ok(table)
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The position of a key, for errors that are found after the document was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeyPosition {
    /// The key, without the names of its tables.
    pub(super) key: String,
    /// The line, from 1.
    pub(super) line: usize,
    /// Its value, if that is a string.
    pub(super) text: Option<String>,
}

/// A value with its key and position.
pub(super) struct Value<'a> {
    document: &'a Document<'a>,
    key: String,
    name: &'a str,
    at: usize,
    value: &'a DeValue<'a>,
}

impl<'a> Value<'a> {
    /// The last part of the key.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// An error at this position.
    pub(super) fn wrong(&self, message: impl Into<String>) -> ConfigError {
        self.document.wrong(self.at, self.key.clone(), message.into())
    }

    /// The error of a value that is not `allowed`.
    pub(super) fn not(&self, allowed: &str) -> ConfigError {
        self.wrong(format!("it is {}; allowed is {allowed}", self.shown()))
    }

    /// File, line and key, for errors that are found later.
    pub(super) fn position(&self) -> (PathBuf, usize, String) {
        (self.document.file.to_owned(), self.document.line(self.at), self.key.clone())
    }

    pub(super) fn as_text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    pub(super) fn is_text(&self) -> bool {
        self.value.is_str()
    }

    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        self.value.as_bool()
    }

    pub(super) fn flag(&self) -> Result<bool, ConfigError> {
        self.as_bool().ok_or_else(|| self.not("true or false"))
    }

    pub(super) fn text(&self, allowed: &str) -> Result<&'a str, ConfigError> {
        self.value.as_str().ok_or_else(|| self.not(allowed))
    }

    /// An absolute path.
    pub(super) fn absolute(&self, allowed: &str) -> Result<PathBuf, ConfigError> {
        let path = PathBuf::from(self.text(allowed)?);
        if path.is_absolute() { Ok(path) } else { Err(self.not(allowed)) }
    }

    /// A string that `T` parses.
    pub(super) fn parsed<T: FromStr>(&self, allowed: &str) -> Result<T, ConfigError> {
        self.text(allowed)?.parse().map_err(|_| self.not(allowed))
    }

    pub(super) fn number(&self, range: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        self.value
            .as_integer()
            .filter(|number| number.radix() == 10)
            .and_then(|number| number.as_str().parse().ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                self.not(&format!("a whole number from {} to {}", range.start(), range.end()))
            })
    }

    pub(super) fn section(&self) -> Result<Section<'a>, ConfigError> {
        self.section_or("a table")
    }

    pub(super) fn section_or(&self, allowed: &str) -> Result<Section<'a>, ConfigError> {
        let table = self.value.as_table().ok_or_else(|| self.not(allowed))?;
        Ok(Section { document: self.document, path: self.key.clone(), at: self.at, table })
    }

    /// Reads each item of a list.
    pub(super) fn each<T>(
        &self,
        read: impl Fn(&Value<'a>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let items = self.value.as_array().ok_or_else(|| self.not("a list"))?;
        let item = |(index, item): (usize, &'a Spanned<DeValue<'a>>)| Value {
            document: self.document,
            key: format!("{}[{index}]", self.key),
            name: self.name,
            at: item.span().start,
            value: item.get_ref(),
        };
        items.iter().enumerate().map(item).map(|value| read(&value)).collect()
    }

    fn to_toml(&self) -> Result<toml::Value, ConfigError> {
        use serde::Deserialize;
        let spanned = Spanned::new(0..0, self.value.clone());
        toml::Value::deserialize(toml::de::ValueDeserializer::from(spanned))
            .map_err(|error| self.wrong(error.message()))
    }

    /// The value, shortened for an error.
    fn shown(&self) -> String {
        match self.value {
            DeValue::String(text) => {
                let short: String = text.chars().take(40).collect();
                let cut = if short.len() < text.len() { "…" } else { "" };
                format!("{short:?}{cut}")
            }
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Integer(value) => value.to_string(),
            other => format!("a value of type {}", other.type_str()),
        }
    }
}

fn unknown(name: &str, known: &[&str]) -> String {
    match closest(name, known.iter().copied()) {
        Some(candidate) => format!("it is unknown; did you mean `{candidate}`?"),
        None => format!("it is unknown; known are {}", known.join(", ")),
    }
}
