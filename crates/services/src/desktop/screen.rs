//! A screen: the X server that the configuration or the environment names.

pub(crate) mod authority;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use levada_service::DefinitionError;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

pub use authority::wildcard_authority;

/// Maximum length of the name of a display, in bytes.
const MAX_DISPLAY: usize = 256;

/// An X server, and the authority file with its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    display: String,
    /// If `None`, the X library uses its default.
    authority: Option<PathBuf>,
}

impl Screen {
    /// The X server called `display`, such as `:0`.
    pub fn new(display: String, authority: Option<PathBuf>) -> Self {
        Self { display, authority }
    }

    /// The screen that this process's environment names (`DISPLAY`, `XAUTHORITY`).
    pub fn from_environment() -> Option<Self> {
        let display = env::var("DISPLAY").ok().filter(|name| is_display(name))?;
        Some(Self { display, authority: authority_of_environment() })
    }

    /// The screen of the service called `name`: by its options, or else by the environment.
    pub(crate) fn of_service(name: &str, options: ScreenOptions) -> Result<Self, DefinitionError> {
        let ScreenOptions { display, authority } = options;
        let authority = authority.or_else(authority_of_environment);
        match display {
            Some(display) => Ok(Self { display, authority }),
            None => Self::from_environment().ok_or_else(|| DefinitionError::Machine {
                name: name.to_owned(),
                text: "this node has no screen: set `display`, such as \":0\", or start it where \
                       DISPLAY is set"
                    .to_owned(),
            }),
        }
    }

    /// The name of the X server.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// The variables that a program needs to use this screen.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![("DISPLAY", OsString::from(&self.display))];
        if let Some(authority) = &self.authority {
            variables.push(("XAUTHORITY", authority.into()));
        }
        variables
    }

    /// The authority file of the X server, if it is known.
    pub fn authority(&self) -> Option<&PathBuf> {
        self.authority.as_ref()
    }
}

/// The options of a service that uses a screen.
#[derive(Default)]
pub(crate) struct ScreenOptions {
    pub(crate) display: Option<String>,
    pub(crate) authority: Option<PathBuf>,
}

/// The default authority file of the X library. It is passed explicitly to programs that run with
/// another HOME.
fn authority_of_environment() -> Option<PathBuf> {
    if let Some(path) = env::var_os("XAUTHORITY").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let file = PathBuf::from(env::var_os("HOME")?).join(".Xauthority");
    file.is_file().then_some(file)
}

/// Whether `name` is `[HOST]:NUMBER[.SCREEN]` (X(7)), with no character that is special in an
/// option or a log.
fn is_display(name: &str) -> bool {
    let Some((host, number)) = name.rsplit_once(':') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (display, screen) = number.split_once('.').unwrap_or((number, "0"));
    name.len() <= MAX_DISPLAY
        && !host.starts_with('-')
        && host.chars().all(plain)
        && digits(display)
        && digits(screen)
}

/// Parses the option `display`.
pub(crate) fn display<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(deserializer)?;
    if !is_display(&name) {
        return Err(D::Error::custom("display must be the name of an X server, such as \":0\""));
    }
    Ok(Some(name))
}

/// Parses the option `xauthority`.
pub(crate) fn authority<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    if !path.is_absolute() {
        return Err(D::Error::custom("xauthority must be the absolute path of a file"));
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_display_names_of_x() {
        for name in [":0", ":12.1", "localhost:10.0", "unix:3"] {
            assert!(is_display(name), "{name}");
        }
        for name in ["", "0", ":", ":a", ":0.", "-x:0", ":0 --help", "a b:0", ":0\n", ":.0"] {
            assert!(!is_display(name), "{name:?}");
        }
    }

    #[test]
    fn the_configuration_overrides_the_environment() {
        let options = ScreenOptions { display: Some(":7".into()), authority: Some("/a".into()) };
        let screen = Screen::of_service("show", options).unwrap();
        assert_eq!(screen, Screen::new(":7".into(), Some("/a".into())));
        let variables = screen.environment();
        let expected = [("DISPLAY", ":7"), ("XAUTHORITY", "/a")];
        assert_eq!(variables, expected.map(|(name, value)| (name, OsString::from(value))));
    }
}
