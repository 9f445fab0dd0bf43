//! Paths under `/.well-known/`, and the texts of reTHINK's catalogue for those that do not exist.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::model::Kind;
use crate::rethink::{Conditions, PREFIX, attributes};

/// The type of packages in paths.
const PACKAGES: &str = "sourcepackage";
/// The name of the object or package that the operator chose.
pub(super) const DEFAULT: &str = "default";
/// The types in the order of reTHINK's texts.
const TYPES: &str = "[protocolstub, sourcepackage, runtime, idp-proxy, hyperty, dataschema]";

/// The text is not a type of reTHINK's catalogue.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("use dataschema, hyperty, idp-proxy, protocolstub, runtime or sourcepackage")]
pub struct UnknownType;

/// The first segment of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathType {
    /// Objects of a kind.
    Objects(Kind),
    /// Packages, by their class name.
    Packages,
}

impl PathType {
    /// Its form in paths.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Objects(kind) => kind.as_str(),
            Self::Packages => PACKAGES,
        }
    }

    fn attributes(self) -> &'static [attributes::Attribute] {
        match self {
            Self::Objects(kind) => attributes::attributes_of(kind).unwrap_or_default(),
            Self::Packages => attributes::PACKAGE,
        }
    }
}

impl fmt::Display for PathType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PathType {
    type Err = UnknownType;

    fn from_str(text: &str) -> Result<Self, UnknownType> {
        match text.parse::<Kind>() {
            _ if text == PACKAGES => Ok(Self::Packages),
            Ok(kind) if kind.is_rethink() => Ok(Self::Objects(kind)),
            _ => Err(UnknownType),
        }
    }
}

/// A parsed path.
pub(super) struct Path<'a> {
    /// `None` for the list of types; then there is no name either.
    pub path_type: Option<PathType>,
    pub name: Option<&'a str>,
    /// An attribute of the type.
    pub attribute: Option<&'a str>,
    /// Whether the host is inserted into the URL of a package: reTHINK's catalogue compares the end
    /// of the path, so a trailing slash leaves the value unchanged.
    pub with_host: bool,
}

impl<'a> Path<'a> {
    /// Splits an undecoded path.
    ///
    /// # Errors
    /// The text of the answer.
    pub fn parse(path: &'a [u8]) -> Result<Self, String> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let rest = path.strip_prefix(PREFIX.as_bytes());
        let rest = rest.and_then(|rest| str::from_utf8(rest).ok());
        let rest = rest.ok_or("there is no such path")?;
        let mut segments = rest.split('/').filter(|segment| !segment.is_empty());
        let path_type = segments.next();
        let name = segments.next();
        let attribute = segments.next();
        if segments.next().is_some() {
            return Err("the path has more segments than TYPE/NAME/ATTRIBUTE".to_owned());
        }
        let path_type = match path_type {
            Some(text) => Some(text.parse().map_err(|_| unknown_type(text, name))?),
            None => None,
        };
        if let (Some(path_type), Some(attribute)) = (path_type, attribute) {
            check_attribute(path_type, attribute)?;
        }
        Ok(Self { path_type, name, attribute, with_host: !path.ends_with(b"/") })
    }
}

fn unknown_type(text: &str, name: Option<&str>) -> String {
    match name {
        None => format!(
            "Unknown object type '{text}', please use one of: {TYPES} or 'restart' or 'database'"
        ),
        Some(_) => format!("Unknown object type, please use one of: {TYPES} or 'restart'"),
    }
}

fn check_attribute(path_type: PathType, name: &str) -> Result<(), String> {
    let attributes = path_type.attributes();
    if attributes.iter().any(|attribute| attribute.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = attributes.iter().map(|attribute| attribute.name).collect();
    let names = names.join(", ");
    Err(format!("invalid resource name '{name}'. Please use one of the following: [{names}]"))
}

pub(super) fn no_instance(path_type: PathType, name: &str) -> String {
    match name {
        DEFAULT => format!("No instance defined as default for type '{path_type}'"),
        name => format!("Could not find instance: {name}"),
    }
}

impl Conditions {
    pub(super) fn no_match(&self, name: &str) -> String {
        format!("Unable to find instance named {name} that matches constraints {}", self.text())
    }

    /// The text for a list without a match.
    pub fn no_list_match(&self, path_type: PathType) -> String {
        format!("No {path_type} instance found that meets the constraints {}", self.text())
    }
}
