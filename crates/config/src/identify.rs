//! Identities in the configuration: written out, by the name of a pin, or as members of a group.

use std::path::PathBuf;

use levada_core::{Identity, NAME_RULE, check_name};

use super::reader::Value;
use super::{ConfigError, GROUP_PREFIX, Groups};
use levada_home::known::Known;

pub(super) const ALLOWED: &str =
    "an identity, which begins with `lv` (`levada id` prints it), or a name of `levada peers ls`";
pub(super) const ALLOWED_SUBJECT: &str = "an identity, which begins with `lv` (`levada id` prints \
     it), a name of `levada peers ls`, or a group such as \"group:family\"";

/// A position in the configuration, for errors that are found later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    file: PathBuf,
    line: usize,
    key: String,
}

impl Position {
    pub(super) fn of(value: &Value<'_>) -> Self {
        let (file, line, key) = value.position();
        Self { file, line, key }
    }

    /// The position as FILE:LINE.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }

    pub(super) fn wrong(&self, message: String) -> ConfigError {
        let Self { file, line, key } = self.clone();
        ConfigError::Wrong { file, line, key, message }
    }
}

/// An identity or the name of a pin, with its position in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRef {
    text: String,
    position: Position,
}

impl IdentityRef {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        Self::read_or(value, ALLOWED)
    }

    fn read_or(value: &Value<'_>, allowed: &str) -> Result<Self, ConfigError> {
        Self::text_or(value, value.text(allowed)?, allowed)
    }

    /// As [`Self::read`], of a part of the value.
    pub(super) fn read_text(value: &Value<'_>, text: &str) -> Result<Self, ConfigError> {
        Self::text_or(value, text, ALLOWED)
    }

    fn text_or(value: &Value<'_>, text: &str, allowed: &str) -> Result<Self, ConfigError> {
        if text.parse::<Identity>().is_err() && check_name(text).is_err() {
            return Err(value.not(allowed));
        }
        Ok(Self { text: text.to_owned(), position: Position::of(value) })
    }

    /// The identity or the name, as it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if it is the name of a pin.
    pub fn is_name(&self) -> bool {
        self.text.parse::<Identity>().is_err()
    }

    /// Its place in the configuration, as FILE:LINE.
    pub fn place(&self) -> String {
        self.position.place()
    }

    /// The identity; a name is resolved with the current pins.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for a name that is not pinned, with its position.
    pub fn identity(&self, known: &Known) -> Result<Identity, ConfigError> {
        known.identity_of(&self.text).map_err(|error| self.position.wrong(error.to_string()))
    }
}

/// An identity, the name of a pin, or a group, with its position in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A single identity.
    Identity(IdentityRef),
    /// The members of a group.
    Group(GroupRef),
}

/// A group that the configuration refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRef {
    name: String,
    position: Position,
}

impl Subject {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        let Some(name) = value.text(ALLOWED_SUBJECT)?.strip_prefix(GROUP_PREFIX) else {
            return IdentityRef::read_or(value, ALLOWED_SUBJECT).map(Self::Identity);
        };
        if check_name(name).is_err() {
            return Err(value.wrong(format!("after `{GROUP_PREFIX}`, it needs {NAME_RULE}")));
        }
        let position = Position::of(value);
        Ok(Self::Group(GroupRef { name: name.to_owned(), position }))
    }

    /// Its place in the configuration, as FILE:LINE.
    pub fn place(&self) -> String {
        self.position().place()
    }

    /// An error at its place.
    pub fn wrong(&self, message: String) -> ConfigError {
        self.position().wrong(message)
    }

    /// The name of the group, if it is one.
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::Identity(_) => None,
            Self::Group(group) => Some(&group.name),
        }
    }

    /// The identities that it stands for now; the members of a group also after their expiry.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for a name that is not pinned, and for a group that does not exist,
    /// with its position.
    pub fn identities(&self, known: &Known, groups: &Groups) -> Result<Vec<Identity>, ConfigError> {
        match self {
            Self::Identity(identity) => Ok(vec![identity.identity(known)?]),
            Self::Group(group) => match groups.members_or_none(&group.name) {
                Some(members) => Ok(members.keys().copied().collect()),
                None => Err(self.unknown_group()),
            },
        }
    }

    /// The error of a group that does not exist.
    pub fn unknown_group(&self) -> ConfigError {
        let name = self.group().unwrap_or_default();
        self.wrong(format!(
            "no group has the name `{name}`: define it by a [[group]], or while the node runs by \
             `levada group add {name} MEMBER`"
        ))
    }

    fn position(&self) -> &Position {
        match self {
            Self::Identity(identity) => &identity.position,
            Self::Group(group) => &group.position,
        }
    }
}
