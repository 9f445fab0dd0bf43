//! The definition of a service, in the configuration or in a file of its own.

use std::path::{Path, PathBuf};

use levada_core::{NAME_RULE, check_name};

use super::ConfigError;
use super::reader::{self, KeyPosition, Section, Value, read_file};

/// The definition of a service, with positions for errors.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSource {
    /// The name of the service.
    pub name: String,
    /// All of its keys, including `name`.
    pub table: toml::Table,
    /// The file that defines it.
    pub file: PathBuf,
    /// The line on which the definition begins.
    pub line: usize,
    /// The position of every key, including nested ones.
    positions: Vec<KeyPosition>,
}

impl ServiceSource {
    /// Reads a file that defines one service: the keys of a `[[service]]`, at the top.
    ///
    /// # Errors
    /// [`ConfigError`] if it cannot be read, or has an error.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(file, &read_file(file)?)
    }

    /// Parses the text of such a file; errors name `file`.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for the first error.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        reader::parse(file, text, Self::read)
    }

    /// An error about `key` of this definition, with its position. If there is no such key but the
    /// message names one in backticks, the error is about that one.
    pub fn wrong(&self, key: &str, message: impl Into<String>) -> ConfigError {
        let message = message.into();
        let known = self.line_of(key).map(|line| (key, line));
        let named = || {
            let named = message.split('`').skip(1).step_by(2);
            named.filter_map(|name| Some((name, self.line_of(name)?))).next()
        };
        let (key, line) = known.or_else(named).unwrap_or((key, self.line));
        ConfigError::Wrong { file: self.file.clone(), line, key: key.to_owned(), message }
    }

    /// As [`Self::wrong`], about the `key` whose value is `text`.
    pub fn wrong_text(&self, key: &str, text: &str, message: impl Into<String>) -> ConfigError {
        let matches =
            |position: &&KeyPosition| position.key == key && position.text.as_deref() == Some(text);
        match self.positions.iter().find(matches) {
            Some(position) => ConfigError::Wrong {
                file: self.file.clone(),
                line: position.line,
                key: key.to_owned(),
                message: message.into(),
            },
            None => self.wrong(key, message),
        }
    }

    /// The line of a key, with or without the names of its tables. If several tables have such a
    /// key, the line of the first table.
    fn line_of(&self, key: &str) -> Option<usize> {
        let last = key.rsplit('.').next()?;
        let mut found = self.positions.iter().filter(|position| position.key == last);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) if last != key => self.line_of(key.split('.').next()?),
            (first, _) => first.map(|position| position.line),
        }
    }

    pub(super) fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        let name = name(&section.required("name", NAME_RULE)?)?;
        let kind = "the type of the service, such as \"exec\"";
        section.required("type", kind)?.text(kind)?;
        Ok(Self {
            name,
            table: section.to_table()?,
            file: section.file().to_owned(),
            line: section.line(),
            positions: section.key_positions(),
        })
    }
}

pub(super) fn name(value: &Value<'_>) -> Result<String, ConfigError> {
    let text = value.text(NAME_RULE)?;
    check_name(text).map_err(|_| value.not(NAME_RULE))?;
    Ok(text.to_owned())
}

/// Refuses tables of a service that stand at the top of a configuration, as in a file that defines
/// one service.
pub(super) fn refuse_tables_at_top(section: &Section<'_>) -> Result<(), ConfigError> {
    let found = section.values().into_iter().find_map(|value| match value.name() {
        "command" | "middlebox" if value.is_list() => Some((value, true)),
        "environment" => Some((value, false)),
        _ => None,
    });
    let Some((value, is_list)) = found else { return Ok(()) };
    let path = format!("service.{}", value.name());
    let form = if is_list { format!("[[{path}]]") } else { format!("[{path}]") };
    Err(value.wrong(format!("it belongs to a service: write `{form}` below its `[[service]]`")))
}

pub(super) fn refuse_repeated(services: &[ServiceSource]) -> Result<(), ConfigError> {
    for (index, service) in services.iter().enumerate() {
        if let Some(first) = services[..index].iter().find(|first| first.name == service.name) {
            let message =
                format!("the service `{}` is already on line {}", service.name, first.line);
            return Err(service.wrong(&format!("service[{index}].name"), message));
        }
    }
    Ok(())
}
