//! Finds a service by its type.

use std::sync::Arc;

use serde::Deserialize;

use crate::capability::{self, Mediator};
use crate::catalogue::{self, Catalogue};
use crate::clock::Clock;
use crate::display::{self, Display};
use crate::echo::Echo;
use crate::exec::{self, Exec, Shell};
use crate::forward::{self, Forward};
use crate::input::service::{self as input, Input};
use crate::invoke::{self, Invoke};
use crate::{Context, Definition, DefinitionError, Service};

/// Declares the options of a type. The keys of every definition are added to its own: so the options can
/// be read from the whole definition, and an unknown key is told beside all that are known.
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
pub(crate) use definition_options;

/// Every type of service, in order of the alphabet.
pub const TYPES: &[&str] = &[
    "capability",
    "catalogue",
    "clock",
    "display",
    "echo",
    "exec",
    "forward",
    "input",
    "invoke",
    "shell",
];

/// The service that `definition` defines, for the node of `context`. Programs are looked up now, once.
///
/// # Errors
/// [`DefinitionError`] if there is no such type, or its options are wrong.
pub fn build(
    definition: &Definition,
    context: &Context,
) -> Result<Arc<dyn Service>, DefinitionError> {
    let name = &definition.name;
    let service: Arc<dyn Service> = match definition.kind.as_str() {
        "capability" => Arc::new(Mediator::new(context, &options(definition)?)),
        "catalogue" => Arc::new(Catalogue::new(definition, context, options(definition)?)?),
        "clock" => {
            none(definition)?;
            Arc::new(Clock::new())
        }
        "display" => Arc::new(Display::new(name, options::<display::Options>(definition)?)?),
        "echo" => {
            none(definition)?;
            Arc::new(Echo)
        }
        "exec" => Arc::new(Exec::new(options(definition)?)),
        "forward" => Arc::new(Forward::new(options::<forward::Options>(definition)?)),
        "input" => Arc::new(Input::new(name, options::<input::Options>(definition)?)?),
        "invoke" => Arc::new(Invoke::new(context, options(definition)?)),
        "shell" => {
            none(definition)?;
            Arc::new(Shell)
        }
        _ => return Err(unknown(definition)),
    };
    Ok(service)
}

/// What the service that `definition` defines lacks on this machine. A node offers it all the same, because the rest
/// of it works.
pub fn missing(definition: &Definition) -> Vec<DefinitionError> {
    match definition.kind.as_str() {
        "exec" => match options(definition) {
            Ok(options) => Exec::new(options).missing(&definition.name),
            Err(error) => vec![error],
        },
        _ => Vec::new(),
    }
}

/// Reads the options of the definition's type from the text of the whole definition, for an error
/// that knows its place in the text.
pub(crate) fn check_text(
    definition: &Definition,
    text: &str,
) -> Result<Result<(), toml::de::Error>, DefinitionError> {
    match definition.kind.as_str() {
        "capability" => Ok(toml::from_str::<capability::Options>(text).map(drop)),
        "catalogue" => Ok(toml::from_str::<catalogue::Options>(text).map(drop)),
        "clock" | "echo" | "shell" => Ok(toml::from_str::<NoOptions>(text).map(drop)),
        "display" => Ok(toml::from_str::<display::Options>(text).map(drop)),
        "exec" => Ok(toml::from_str::<exec::Options>(text).map(drop)),
        "forward" => Ok(toml::from_str::<forward::Options>(text).map(drop)),
        "input" => Ok(toml::from_str::<input::Options>(text).map(drop)),
        "invoke" => Ok(toml::from_str::<invoke::Options>(text).map(drop)),
        _ => Err(unknown(definition)),
    }
}

definition_options! {
    /// For types without options of their own.
    struct NoOptions {}
}

fn none(definition: &Definition) -> Result<(), DefinitionError> {
    options::<NoOptions>(definition).map(drop)
}

fn options<T: for<'de> Deserialize<'de>>(definition: &Definition) -> Result<T, DefinitionError> {
    let options = definition.options.clone().try_into();
    options.map_err(|error| DefinitionError::option(definition, &error))
}

fn unknown(definition: &Definition) -> DefinitionError {
    let (name, kind) = (definition.name.clone(), definition.kind.clone());
    DefinitionError::Type { name, kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Description;
    use levada_core::{Framing, Identity};

    const FORWARD: &str = "name = 'run'\ntype = 'forward'\nallow = ['127.0.0.1:80']\n";
    const EXEC: &str = "name = 'run'\ntype = 'exec'\n[[command]]\nprogram = 'cat'\n";
    const INVOKE: &str = "name = 'run'\ntype = 'invoke'\nstart = ['*/*']\n";

    fn build(definition: &Definition) -> Result<Arc<dyn Service>, DefinitionError> {
        super::build(definition, &Context::without_client(Identity::from_bytes([1; 32])))
    }

    #[test]
    fn every_type_can_be_built_and_described() {
        for kind in TYPES {
            let definition = match *kind {
                "exec" => Definition::from_toml(EXEC).unwrap(),
                "invoke" => Definition::from_toml(INVOKE).unwrap(),
                "forward" => Definition::from_toml(FORWARD).unwrap(),
                // A screen, and a machine that has what it takes, are for the tests with real screens.
                "display" | "input" => continue,
                // A store.
                "catalogue" => continue,
                kind => Definition::plain("run", kind),
            };
            let service = build(&definition).unwrap();
            let description = Description::new(&definition, service.as_ref());
            assert_eq!((description.name.as_str(), description.kind.as_str()), ("run", *kind));
            assert_eq!(description.framings, [Framing::Auto]);
            assert_eq!(description.category, service.category());
        }
    }

    #[test]
    fn a_definition_may_name_another_category() {
        let mut definition = Definition::plain("a", "echo");
        definition.category = Some("kitchen".into());
        let service = build(&definition).unwrap();
        assert_eq!(Description::new(&definition, service.as_ref()).category, "kitchen");
    }

    #[test]
    fn wrong_options_are_refused_with_their_key() {
        let wrong = |definition: &Definition| build(definition).err().unwrap().to_string();
        let mut definition = Definition::plain("a", "echo");
        definition.options.insert("speed".into(), 1.into());
        assert!(wrong(&definition).contains("`speed`"));
        let mut definition = Definition::from_toml(EXEC).unwrap();
        definition.options.insert("pty".into(), 1.into());
        assert!(wrong(&definition).contains("`pty`"), "{}", wrong(&definition));
        assert!(wrong(&Definition::plain("a", "toaster")).contains("`toaster`"));
        assert!(wrong(&Definition::plain("a", "exec")).contains("`command`"));
        assert!(wrong(&Definition::plain("a", "invoke")).contains("`start`"));
        let mut definition = Definition::plain("a", "capability");
        definition.options.insert("entities".into(), 0.into());
        assert!(wrong(&definition).contains("at least 1"), "{}", wrong(&definition));
        assert!(wrong(&Definition::plain("a", "forward")).contains("`allow`"));
    }
}
