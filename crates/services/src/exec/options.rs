//! The options of the type `exec`: which programs may run, with which arguments and environment.

use std::collections::BTreeMap;
use std::path::PathBuf;

use levada_service::{Refused, definition_options};
use regex_lite::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// The environment variable with the kind of a terminal.
pub const TERM: &str = "TERM";

definition_options! {
    /// The options of a definition of type `exec`.
    pub(crate) struct Options {
        #[serde(deserialize_with = "commands")]
        pub(super) command: Vec<AllowedCommand>,
        #[serde(default, deserialize_with = "environment")]
        pub(super) environment: BTreeMap<String, String>,
        #[serde(default = "inherited", deserialize_with = "names")]
        pub(super) inherit_environment: Vec<String>,
        #[serde(default = "from_client", deserialize_with = "names")]
        pub(super) client_environment: Vec<String>,
        #[serde(default, deserialize_with = "directory")]
        pub(super) directory: Option<PathBuf>,
        #[serde(default = "yes")]
        pub(super) pty: bool,
        #[serde(default)]
        pub(super) audit_arguments: bool,
    }
}

/// One `[[command]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AllowedCommand {
    #[serde(deserialize_with = "program")]
    pub(super) program: String,
    args: Option<Pattern>,
    #[serde(default = "max_args")]
    max_args: usize,
}

/// A regular expression that an argument must match from its first to its last character.
struct Pattern(Regex);

impl AllowedCommand {
    /// Whether the program may have these arguments.
    pub(super) fn check(&self, args: &[String]) -> Result<(), Refused> {
        let program = &self.program;
        let limit = self.limit();
        if args.len() > limit {
            let text = format!("{program:?} takes at most {limit} arguments");
            return Err(Refused::NotAccepted(text));
        }
        match args.iter().find(|argument| !self.allows(argument)) {
            Some(argument) => {
                let text = format!("the argument {argument:?} is not allowed for {program:?}");
                Err(Refused::NotAccepted(text))
            }
            None => Ok(()),
        }
    }

    fn limit(&self) -> usize {
        if self.args.is_some() { self.max_args } else { 0 }
    }

    /// An argument cannot contain a zero byte (execve(2)), whatever the pattern allows.
    fn allows(&self, argument: &str) -> bool {
        !argument.contains('\0')
            && self.args.as_ref().is_some_and(|pattern| pattern.0.is_match(argument))
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // Without the group first: `a)|(b` would be valid inside it, and would not be anchored.
        Regex::new(&text).map_err(D::Error::custom)?;
        Regex::new(&format!(r"\A(?:{text})\z")).map(Self).map_err(D::Error::custom)
    }
}

fn program<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let program = String::deserialize(deserializer)?;
    let relative = program.contains('/') && !program.starts_with('/');
    if program.is_empty() || relative || program.contains('\0') {
        return Err(D::Error::custom("a program is a name without `/`, or an absolute path"));
    }
    Ok(program)
}

fn commands<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AllowedCommand>, D::Error> {
    let commands = Vec::deserialize(deserializer)?;
    if commands.is_empty() {
        return Err(D::Error::custom("at least one command must be allowed"));
    }
    Ok(commands)
}

fn environment<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let variables = BTreeMap::<String, String>::deserialize(deserializer)?;
    for (name, value) in &variables {
        check_name::<D::Error>(name)?;
        if value.contains('\0') {
            return Err(D::Error::custom(format_args!(
                "the value of `{name}` contains a zero byte"
            )));
        }
    }
    Ok(variables)
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    names.iter().try_for_each(|name| check_name(name))?;
    Ok(names)
}

fn check_name<E: serde::de::Error>(name: &str) -> Result<(), E> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(E::custom("the name of an environment variable is not empty and has no `=`"));
    }
    Ok(())
}

fn directory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let directory = PathBuf::deserialize(deserializer)?;
    if !directory.is_absolute() {
        return Err(D::Error::custom("a directory is an absolute path"));
    }
    Ok(Some(directory))
}

fn inherited() -> Vec<String> {
    ["PATH", "HOME", "LANG", "USER"].map(str::to_owned).to_vec()
}

fn from_client() -> Vec<String> {
    vec![TERM.to_owned()]
}

fn max_args() -> usize {
    64
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        toml::from_str::<Options>(text).err().unwrap().message().to_owned()
    }

    #[test]
    fn patterns_that_would_escape_their_anchors_are_refused() {
        for pattern in ["a)|(?:.*", "(", "(?x)a # "] {
            let text = format!("[[command]]\nprogram = 'cat'\nargs = '{pattern}'");
            assert!(toml::from_str::<Options>(&text).is_err(), "{pattern}");
        }
    }

    #[test]
    fn invalid_options_are_refused() {
        assert!(wrong("").contains("missing field `command`"));
        assert!(wrong("command = []").contains("at least one"));
        assert!(wrong("[[command]]\nprogram = 'bin/cat'").contains("absolute path"));
        assert!(wrong("[[command]]\nprogram = ''").contains("absolute path"));
        assert!(wrong("directory = 'tmp'\n[[command]]\nprogram = 'cat'").contains("absolute"));
        assert!(wrong("inherit_environment = ['A=B']\n[[command]]\nprogram = 'cat'").contains('='));
        assert!(
            wrong("[environment]\n'' = 'B'\n[[command]]\nprogram = 'cat'").contains("not empty")
        );
    }
}
