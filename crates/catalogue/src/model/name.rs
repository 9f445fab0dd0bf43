//! The names of objects.

use std::fmt;
use std::str::FromStr;

use super::ModelError;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;

/// An object's name: 1 to [`MAX_NAME`] bytes of UTF-8, no control characters, no `/`, and neither `.` nor `..`, so
/// that it can be a segment of a path. Case counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        let length = (1..=MAX_NAME).contains(&text.len());
        let plain = !text.chars().any(|c| c.is_control() || c == '/');
        let step = matches!(text.as_str(), "." | "..");
        if length && plain && !step { Ok(Self(text)) } else { Err(ModelError::Name) }
    }
}

impl FromStr for Name {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        // Not copied before it is known to be short.
        if text.len() > MAX_NAME {
            return Err(ModelError::Name);
        }
        Self::try_from(text.to_owned())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
