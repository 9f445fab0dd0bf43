//! The definition of a service, in the configuration or in a file of its own.

use std::path::{Path, PathBuf};

use super::reader::{self, Section, Value};
use super::{ConfigError, read_file};

const NAME: &str =
    "a name of 1 to 63 letters, digits, `-`, `_` and `.`, which begins with none of `-` and `.`";
const MAX_NAME: usize = 63;

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
    places: Vec<(String, usize)>,
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

    /// An error about this definition, from whoever builds the service and knows no places. If the
    /// message names a key of the definition in backticks, the error is about that key.
    pub fn wrong(&self, key: &str, message: impl Into<String>) -> ConfigError {
        let message = message.into();
        let place = |key: &str| self.places.iter().find(|(known, _)| known == key);
        let named = message.split('`').skip(1).step_by(2).find_map(place);
        let (key, line) = match place(key).or(named) {
            Some((key, line)) => (key.clone(), *line),
            None => (key.to_owned(), self.line),
        };
        ConfigError::Wrong { file: self.file.clone(), line, key, message }
    }

    pub(super) fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        let name = name(&section.required("name", NAME)?)?;
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

/// Whether `text` can be the name of a node or service.
///
/// # Errors
/// A text that says what a name is.
pub fn check_name(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = (1..=MAX_NAME).contains(&text.len())
        && !text.starts_with(['-', '.'])
        && text.chars().all(plain);
    if fits { Ok(()) } else { Err(format!("it is not {NAME}")) }
}

pub(super) fn name(value: &Value<'_>) -> Result<String, ConfigError> {
    let text = value.text(NAME)?;
    check_name(text).map_err(|_| value.not(NAME))?;
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
