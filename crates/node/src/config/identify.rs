//! An identity in the configuration: written out, or by the name that is pinned for it here.

use std::path::PathBuf;

use levada_core::{Identity, check_name};

use super::ConfigError;
use super::reader::Value;
use levada_client::known::Known;

pub(super) const ALLOWED: &str =
    "an identity, which begins with `lv` (`levada id` prints it), or a name of `levada peers ls`";

/// Who is meant by an identity or a name, and where that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    text: String,
    file: PathBuf,
    line: usize,
    key: String,
}

impl Who {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        let text = value.text(ALLOWED)?;
        if text.parse::<Identity>().is_err() && check_name(text).is_err() {
            return Err(value.not(ALLOWED));
        }
        let (file, line, key) = value.place();
        Ok(Self { text: text.to_owned(), file, line, key })
    }

    /// The key that is meant: a name stands for what is pinned under it now.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] names the place of a name that is not pinned.
    pub fn identity(&self, known: &Known) -> Result<Identity, ConfigError> {
        known.identity_of(&self.text).map_err(|error| ConfigError::Wrong {
            file: self.file.clone(),
            line: self.line,
            key: self.key.clone(),
            message: error.to_string(),
        })
    }
}
