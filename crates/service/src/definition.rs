//! The definition of one service in the configuration.

use std::fmt;
use std::path::PathBuf;

use levada_core::Framing;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, SeqAccess, Visitor};
use thiserror::Error;

/// Declares the options of a type. The common keys of definitions are added to its own, so that the
/// options can be deserialized from the whole definition, and an error about an unknown key lists
/// all known keys. The caller must depend on `serde`.
#[macro_export]
macro_rules! definition_options {
    ($(#[$attribute:meta])* $visible:vis struct $name:ident { $($fields:tt)* }) => {
        $(#[$attribute])*
        #[derive(::serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $visible struct $name {
            $($fields)*
            #[serde(default, rename = "name")]
            _name: ::serde::de::IgnoredAny,
            #[serde(default, rename = "type")]
            _kind: ::serde::de::IgnoredAny,
            #[serde(default, rename = "category")]
            _category: ::serde::de::IgnoredAny,
            #[serde(default, rename = "location")]
            _location: ::serde::de::IgnoredAny,
            #[serde(default, rename = "framing")]
            _framing: ::serde::de::IgnoredAny,
        }
    };
}

definition_options! {
    /// The options of types that have none.
    pub struct NoOptions {}
}

/// The longest name of a service, in characters.
const MAX_NAME: usize = 63;

/// One service of a node, as the configuration defines it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Definition {
    /// The name on this node: letters, digits, `-`, `_` and `.`.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// The type, by which the registry finds it; `type` in the configuration.
    #[serde(rename = "type")]
    pub kind: String,
    /// The category; without it, the category of the type.
    pub category: Option<String>,
    /// The location; free text.
    pub location: Option<String>,
    /// The allowed framings, the first being the default; `framing` in the configuration, one or a
    /// list. Without it: `auto`.
    #[serde(rename = "framing", default = "auto", deserialize_with = "framings")]
    pub framings: Vec<Framing>,
    /// All other keys: the options of the type, which refuses unknown ones.
    #[serde(flatten)]
    pub options: toml::Table,
}

/// Why a definition was refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum DefinitionError {
    /// Not TOML, or a key that is unknown, missing or of the wrong form.
    #[error("line {line}: {}{message}", key_prefix(.key))]
    Text {
        /// The line of the text, from 1.
        line: usize,
        /// The key at this line, if there is one.
        key: Option<String>,
        /// The error.
        message: String,
    },
    /// An option of the type that is unknown, missing or of the wrong form; its position in the
    /// text is not known.
    #[error("service `{name}`: {message}")]
    Option {
        /// The service's name.
        name: String,
        /// The error, with the key.
        message: String,
    },
    /// The type does not exist.
    #[error("service `{name}`: there is no type `{kind}`; the types are {}", .types.join(", "))]
    Type {
        /// The service's name.
        name: String,
        /// The type that does not exist.
        kind: String,
        /// The types that exist.
        types: Vec<&'static str>,
    },
    /// A program that is not an executable file on this machine.
    #[error("service `{name}`: program `{program}` is not an executable file on this machine")]
    Program {
        /// The service's name.
        name: String,
        /// The program as the configuration names it.
        program: String,
    },
    /// A directory that does not exist on this machine.
    #[error("service `{name}`: `{}` is not a directory on this machine", .directory.display())]
    Directory {
        /// The service's name.
        name: String,
        /// The directory as the configuration names it.
        directory: PathBuf,
    },
    /// Another requirement of the service that this machine does not meet.
    #[error("service `{name}`: {text}")]
    Machine {
        /// The service's name.
        name: String,
        /// What is missing, and the remedy.
        text: String,
    },
}

impl Definition {
    /// The options of the type.
    ///
    /// # Errors
    /// [`DefinitionError::Option`] if one is unknown, missing or of the wrong form.
    pub fn read_options<O: DeserializeOwned>(&self) -> Result<O, DefinitionError> {
        let options = self.options.clone().try_into();
        options.map_err(|error| DefinitionError::option(self, &error))
    }

    /// A definition without options.
    pub fn plain(name: &str, kind: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            category: None,
            location: None,
            framings: auto(),
            options: toml::Table::new(),
        }
    }
}

impl DefinitionError {
    /// Adds the line and the key to an error. The value is not shown, because it may be a secret.
    pub(crate) fn locate(text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let key = line.split_once('=').map(|(key, _)| key.trim().to_owned());
        Self::Text {
            line: before.matches('\n').count() + 1,
            key: key.filter(|key| !key.is_empty() && !key.contains(['#', '[', '"', '\''])),
            message: error.message().lines().collect::<Vec<_>>().join(" "),
        }
    }

    /// An error of an option whose position in the text is not known.
    fn option(definition: &Definition, error: &toml::de::Error) -> Self {
        let text = error.to_string();
        let message = text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        Self::Option { name: definition.name.clone(), message }
    }
}

fn key_prefix(key: &Option<String>) -> String {
    key.as_ref().map(|key| format!("`{key}`: ")).unwrap_or_default()
}

fn auto() -> Vec<Framing> {
    vec![Framing::Auto]
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    if name.is_empty()
        || name.len() > MAX_NAME
        || name.starts_with(['-', '.'])
        || !name.chars().all(plain)
    {
        return Err(D::Error::custom(format_args!(
            "a service's name is 1 to {MAX_NAME} letters, digits, `-`, `_` and `.`, and does not begin with `-` or `.`"
        )));
    }
    Ok(name)
}

fn framings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Framing>, D::Error> {
    struct OneOrMore;

    impl<'de> Visitor<'de> for OneOrMore {
        type Value = Vec<Framing>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("`auto`, `block:N`, or a list of them")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![text.parse().map_err(E::custom)?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut framings = Vec::new();
            while let Some(text) = items.next_element::<String>()? {
                let framing: Framing = text.parse().map_err(A::Error::custom)?;
                if framings.contains(&framing) {
                    return Err(A::Error::custom(format_args!("`{framing}` is listed twice")));
                }
                framings.push(framing);
            }
            if framings.is_empty() {
                return Err(A::Error::custom("at least one framing must be allowed"));
            }
            Ok(framings)
        }
    }

    deserializer.deserialize_any(OneOrMore)
}
