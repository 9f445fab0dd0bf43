//! A policy of `levada approve`: rules in a file of their own.

use std::path::Path;

use super::source::RuleSource;
use crate::ConfigError;
use crate::reader::{self, Section};

/// The content of a policy's file.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    /// True if the terminal is asked when no rule matches.
    pub ask: bool,
    /// The rules, in the order of the file.
    pub rules: Vec<RuleSource>,
}

impl PolicyFile {
    /// Reads `file`.
    ///
    /// # Errors
    /// [`ConfigError`] if it cannot be read, or has an error.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(file, &reader::read_file(file)?)
    }

    /// Parses the text of a policy; errors name `file`.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for the first error.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        reader::parse(file, text, |section: &Section<'_>| {
            section.only(&["ask", "rule"])?;
            let ask = section.value("ask").map_or(Ok(false), |value| value.flag())?;
            let rules = section.value("rule").map(|value| value.each(RuleSource::read_of_policy));
            Ok(Self { ask, rules: rules.transpose()?.unwrap_or_default() })
        })
    }
}
