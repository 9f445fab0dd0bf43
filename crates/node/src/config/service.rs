//! The definition of a service, in the configuration or in a file of its own.

use std::path::{Path, PathBuf};

use levada_core::{NAME_RULE, check_name};

use super::reader::{self, Place, Section, Value};
use super::{ConfigError, read_file};

/// A service as it was written down, with the place for errors about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSource {
    /// The name under which it is found.
    pub name: String,
    /// All of its keys, `name` included.
    pub table: toml::Table,
    /// The file that defines it.
    pub file: PathBuf,
    /// The line on which the definition begins.
    pub line: usize,
    /// The line of every key, nested ones too.
    places: Vec<Place>,
}

impl ServiceSource {
    /// Reads a file that defines one service: the keys of a `[[service]]`, at the top.
    ///
    /// # Errors
    /// [`ConfigError`] if it cannot be read, or something in it is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(file, &read_file(file)?)
    }

    /// Reads the text of such a file; `file` is named in errors.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for the first thing that is wrong.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        reader::parse(file, text, Self::read)
    }

    /// An error about this definition, from whoever builds the service and knows no places. If there
    /// is no `key` but the message names one in backticks, the error is about that one.
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
        let is_it = |place: &&Place| place.key == key && place.text.as_deref() == Some(text);
        match self.places.iter().find(is_it) {
            Some(place) => ConfigError::Wrong {
                file: self.file.clone(),
                line: place.line,
                key: key.to_owned(),
                message: message.into(),
            },
            None => self.wrong(key, message),
        }
    }

    /// The line of a key, with its tables in front or not; that of its first table if several tables
    /// have such a key.
    fn line_of(&self, key: &str) -> Option<usize> {
        let last = key.rsplit('.').next()?;
        let mut found = self.places.iter().filter(|place| place.key == last);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) if last != key => self.line_of(key.split('.').next()?),
            (first, _) => first.map(|place| place.line),
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
            places: section.places(),
        })
    }
}

pub(super) fn name(value: &Value<'_>) -> Result<String, ConfigError> {
    let text = value.text(NAME_RULE)?;
    check_name(text).map_err(|_| value.not(NAME_RULE))?;
    Ok(text.to_owned())
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
