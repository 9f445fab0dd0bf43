//! The names of objects.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::ModelError;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;

/// An object's name: 1 to [`MAX_NAME`] bytes of UTF-8, no control characters, no `/`, and neither `.` nor `..`, so
/// that it can be a segment of a path. Case counts. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name itself, for others who keep it.
    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        text.parse()
    }
}

impl FromStr for Name {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        // The length comes first: nothing long is looked through or copied.
        let plain = (1..=MAX_NAME).contains(&text.len())
            && !text.chars().any(|c| c.is_control() || c == '/')
            && !matches!(text, "." | "..");
        if plain { Ok(Self(text.into())) } else { Err(ModelError::Name) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}
