//! An identity in the configuration, or the name of a pin.

use std::path::PathBuf;

use levada_core::{Identity, check_name};

use super::ConfigError;
use super::reader::Value;
use levada_home::known::Known;

pub(super) const ALLOWED: &str =
    "an identity, which begins with `lv` (`levada id` prints it), or a name of `levada peers ls`";

/// An identity or the name of a pin, with its position in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRef {
    text: String,
    file: PathBuf,
    line: usize,
    key: String,
}

impl IdentityRef {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        let text = value.text(ALLOWED)?;
        if text.parse::<Identity>().is_err() && check_name(text).is_err() {
            return Err(value.not(ALLOWED));
        }
        let (file, line, key) = value.position();
        Ok(Self { text: text.to_owned(), file, line, key })
    }

    /// Its place in the configuration, as FILE:LINE.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }

    /// The identity; a name is resolved with the current pins.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for a name that is not pinned, with its position.
    pub fn identity(&self, known: &Known) -> Result<Identity, ConfigError> {
        known.identity_of(&self.text).map_err(|error| ConfigError::Wrong {
            file: self.file.clone(),
            line: self.line,
            key: self.key.clone(),
            message: error.to_string(),
        })
    }
}
