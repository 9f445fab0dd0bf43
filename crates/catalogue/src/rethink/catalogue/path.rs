//! Paths of the original, and its words for those that lead nowhere.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::model::Kind;
use crate::rethink::{Conditions, PREFIX, attributes};

/// The type under which packages are asked for.
const PACKAGES: &str = "sourcepackage";
/// Stands for an object or package that the operator chose.
pub(super) const DEFAULT: &str = "default";
/// The types in the order of the original's texts.
const TYPES: &str = "[protocolstub, sourcepackage, runtime, idp-proxy, hyperty, dataschema]";

/// No type of the original.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("use dataschema, hyperty, idp-proxy, protocolstub, runtime or sourcepackage")]
pub struct UnknownType;

/// What a path names first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathType {
    /// Objects of a kind.
    Objects(Kind),
    /// Packages, by their class name.
    Packages,
}

impl PathType {
    /// Its name in paths.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Objects(kind) => kind.as_str(),
            Self::Packages => PACKAGES,
        }
    }

    fn attributes(self) -> &'static [attributes::Attribute] {
        match self {
            Self::Objects(kind) => attributes::of(kind).unwrap_or_default(),
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
            Ok(Kind::Service) | Err(_) => Err(UnknownType),
            Ok(kind) => Ok(Self::Objects(kind)),
        }
    }
}

/// A path that may lead somewhere.
pub(super) struct Path<'a> {
    /// None for the list of types; then there is no name either.
    pub of: Option<PathType>,
    pub name: Option<&'a str>,
    /// One that the type has.
    pub attribute: Option<&'a str>,
    /// Whether the URL of a package gets its host: the original looked at the end of the path, so that a slash behind
    /// it leaves the value as it is.
    pub spliced: bool,
}

impl<'a> Path<'a> {
    /// Takes a path apart, which is not decoded.
    ///
    /// # Errors
    /// The text that says what is wrong.
    pub fn read(path: &'a [u8]) -> Result<Self, String> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let rest = path.strip_prefix(PREFIX.as_bytes());
        let rest = rest.and_then(|rest| str::from_utf8(rest).ok());
        let rest = rest.ok_or("there is no such path")?;
        let mut segments = rest.split('/').filter(|segment| !segment.is_empty());
        let (of, name, attribute) = (segments.next(), segments.next(), segments.next());
        if segments.next().is_some() {
            return Err("a path is TYPE/NAME/ATTRIBUTE and no longer".to_owned());
        }
        let of = match of {
            Some(text) => Some(text.parse().map_err(|_| unknown_type(text, name))?),
            None => None,
        };
        if let (Some(of), Some(attribute)) = (of, attribute) {
            check_attribute(of, attribute)?;
        }
        Ok(Self { of, name, attribute, spliced: !path.ends_with(b"/") })
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

fn check_attribute(of: PathType, name: &str) -> Result<(), String> {
    let attributes = of.attributes();
    if attributes.iter().any(|attribute| attribute.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = attributes.iter().map(|attribute| attribute.name).collect();
    let names = names.join(", ");
    Err(format!("invalid resource name '{name}'. Please use one of the following: [{names}]"))
}

pub(super) fn no_instance(of: PathType, name: &str) -> String {
    match name {
        DEFAULT => format!("No instance defined as default for type '{of}'"),
        name => format!("Could not find instance: {name}"),
    }
}

impl Conditions {
    pub(super) fn unmet_by(&self, name: &str) -> String {
        format!("Unable to find instance named {name} that matches constraints {}", self.text())
    }

    /// The text of a list in which nothing is left.
    pub fn unmet_by_all(&self, of: PathType) -> String {
        format!("No {of} instance found that meets the constraints {}", self.text())
    }
}
