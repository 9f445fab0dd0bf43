//! The names of objects.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{MAX_NAME, ModelError};

/// An object's name: 1 to [`MAX_NAME`] bytes of UTF-8, no control characters, no `/`, and neither
/// `.` nor `..`, so that it can be a segment of a path. Names are case-sensitive. Clones share the
/// text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The shared text of the name.
    #[cfg(feature = "rethink")]
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
        // The length is checked first, so that a long text is neither scanned nor copied.
        let valid = (1..=MAX_NAME).contains(&text.len())
            && !text.chars().any(|c| c.is_control() || c == '/')
            && !matches!(text, "." | "..");
        if valid { Ok(Self(text.into())) } else { Err(ModelError::Name) }
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
