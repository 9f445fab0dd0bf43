//! What a node offers: the configured services, the default ones, and those for trying.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use levada_core::{check_name, wire};
use levada_service::{Context, Definition, DefinitionError, Description, Registry, Service};
use levada_services::registry;
use serde::Deserialize;

use crate::config::{Config, ConfigError, ServiceSource};
use crate::overrides::Overrides;
use levada_client::known::{Known, NameError};

/// The type, and the name where nobody has given one, of the service that offers the catalogue.
const CATALOGUE: &str = "catalogue";

/// The type, and the name, of the service that `shell = true` offers.
pub(crate) const SHELL: &str = "shell";

/// The key of `invoke` that lists places.
const START: &str = "start";

/// `up --demo`: commands that show something and change nothing.
const DEMO: &str = r#"
name = "exec"
type = "exec"

[[command]]
program = "uname"
args = ".*"

[[command]]
program = "date"
args = '-u|\+[\s\S]*'

[[command]]
program = "cat"
"#;

/// A service that the node offers.
pub(crate) struct Offered {
    pub(crate) description: Description,
    pub(crate) service: Arc<dyn Service>,
}

/// What a node's services are built with.
pub(crate) struct Builder {
    pub(crate) registry: Registry,
    pub(crate) context: Context,
}

/// The services by name. Without any configured, `echo` and `clock` are offered.
///
/// # Errors
/// [`ConfigError`] names the file, the line and what is wrong there.
pub(crate) fn offered(
    config: &Config,
    overrides: &Overrides,
    known: &Known,
    builder: &Builder,
) -> Result<BTreeMap<String, Offered>, ConfigError> {
    let mut offered = BTreeMap::new();
    let mut files = Vec::new();
    for file in &overrides.services {
        files.push(ServiceSource::load(file)?);
    }
    let sources = config.services.iter().chain(&files);
    for source in sources.filter(|one| !overrides.only_catalogue || is_catalogue(one)) {
        if offered.contains_key(&source.name) {
            return Err(source.wrong("name", format!("`{}` is offered twice", source.name)));
        }
        offered.insert(source.name.clone(), from_source(source, known, builder)?);
    }
    let wanted = overrides.only_catalogue || config.catalogue.wanted == Some(true);
    let defined = config.services.iter().chain(&files).any(is_catalogue);
    if wanted && !defined {
        add_missing(&mut offered, Definition::plain(CATALOGUE, CATALOGUE), builder);
    }
    if overrides.only_catalogue {
        return Ok(offered);
    }
    if config.services.is_empty() {
        for kind in ["clock", "echo"] {
            add_missing(&mut offered, Definition::plain(kind, kind), builder);
        }
    }
    if config.shell {
        add_missing(&mut offered, Definition::plain(SHELL, SHELL), builder);
    }
    if overrides.demo
        && let Ok(definition) = Definition::from_toml(DEMO, &builder.registry)
    {
        add_missing(&mut offered, definition, builder);
    }
    Ok(offered)
}

/// What services that are configured lack on this machine, each with its place. They are offered all the same: a
/// program that was removed must not keep a node from starting.
///
/// # Errors
/// [`ConfigError`] if a file cannot be read.
pub fn missing(config: &Config, files: &[PathBuf]) -> Result<Vec<ConfigError>, ConfigError> {
    let files = files.iter().map(|file| ServiceSource::load(file));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut missing = Vec::new();
    let registry = registry(None);
    for source in config.services.iter().chain(&files) {
        // What is no definition stops the node, with an error of its own.
        let Ok(definition) = Definition::deserialize(source.table.clone()) else { continue };
        missing.extend(registry.missing(&definition).iter().map(|error| placed(source, error)));
    }
    Ok(missing)
}

/// Whether a service needs the node's catalogue.
pub(crate) fn is_catalogue(source: &ServiceSource) -> bool {
    source.table.get("type").and_then(toml::Value::as_str) == Some(CATALOGUE)
}

fn from_source(
    source: &ServiceSource,
    known: &Known,
    builder: &Builder,
) -> Result<Offered, ConfigError> {
    let mut table = source.table.clone();
    written_out(&mut table, known).map_err(|error| source.wrong(START, error.to_string()))?;
    let definition = Definition::deserialize(table)
        .map_err(|error| source.wrong("service", one_line(&error.to_string())))?;
    offer(&definition, builder).map_err(|error| placed(source, &error))
}

/// The error with its place.
fn placed(source: &ServiceSource, error: &DefinitionError) -> ConfigError {
    match error {
        DefinitionError::Type { .. } => source.wrong("type", error.to_string()),
        DefinitionError::Program { program, .. } => {
            source.wrong_text("program", program, error.to_string())
        }
        DefinitionError::Directory { .. } => source.wrong("directory", error.to_string()),
        _ => source.wrong("service", error.to_string()),
    }
}

/// Puts identities in the place of names in NODE/SERVICE, where a definition lists such places.
fn written_out(table: &mut toml::Table, known: &Known) -> Result<(), NameError> {
    let places = table.get_mut(START).and_then(toml::Value::as_array_mut).into_iter().flatten();
    for place in places {
        let Some((node, service)) = place.as_str().and_then(|text| text.rsplit_once('/')) else {
            continue;
        };
        // What is no name either is for the service to refuse.
        if node != "*" && check_name(node).is_ok() {
            *place = format!("{}/{service}", known.identity_of(node)?).into();
        }
    }
    Ok(())
}

/// Adds a built-in definition; a name that the configuration has taken stays as it is.
fn add_missing(offered: &mut BTreeMap<String, Offered>, definition: Definition, builder: &Builder) {
    if offered.contains_key(&definition.name) {
        return;
    }
    match offer(&definition, builder) {
        Ok(service) => {
            offered.insert(definition.name, service);
        }
        Err(error) => tracing::warn!(%error, "a built-in service is not offered"),
    }
}

fn offer(definition: &Definition, builder: &Builder) -> Result<Offered, DefinitionError> {
    let service = builder.registry.build(definition, &builder.context)?;
    Ok(Offered { description: Description::new(definition, service.as_ref()), service })
}

fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(" ")
}

/// What a node answers to a query.
pub(crate) fn describe(description: &Description) -> wire::Service {
    wire::Service {
        name: description.name.clone(),
        category: description.category.clone(),
        r#type: description.kind.clone(),
        version: description.version.clone(),
        location: description.location.clone(),
        parameters: description
            .parameters
            .iter()
            .map(|(key, meaning)| wire::Parameter { key: key.clone(), meaning: meaning.clone() })
            .collect(),
        framings: description.framings.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::{Identity, Params, encode_list};

    fn demo_takes(args: &[&str]) -> bool {
        let registry = registry(None);
        let definition = Definition::from_toml(DEMO, &registry).unwrap();
        let mut params = Params::new();
        params.add(Params::ARGS, encode_list(args)).unwrap();
        let context = Context::without_client(Identity::from_bytes([1; 32]));
        registry.build(&definition, &context).unwrap().check(&params, true).is_ok()
    }

    #[test]
    fn places_may_name_nodes_by_the_names_that_are_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let known = Known::open(&folder.path().join("known.db")).unwrap();
        let well = Identity::from_bytes([2; 32]);
        known.pin("well", &well, &[], levada_core::UnixTime(1)).unwrap();
        let mut table: toml::Table =
            format!("start = ['well/exec', '*/echo', '{well}/a*', 'a b']").parse().unwrap();
        written_out(&mut table, &known).unwrap();
        let places: Vec<_> =
            table[START].as_array().unwrap().iter().map(|place| place.as_str().unwrap()).collect();
        let [by_name, by_key] = [format!("{well}/exec"), format!("{well}/a*")];
        assert_eq!(places, [by_name.as_str(), "*/echo", &by_key, "a b"]);
        let mut table: toml::Table = "start = ['nowhere/exec']".parse().unwrap();
        assert!(written_out(&mut table, &known).unwrap_err().to_string().contains("`nowhere`"));
    }

    #[test]
    fn the_demo_runs_what_shows_something_and_nothing_else() {
        assert!(demo_takes(&["uname", "-a", "--", "anything"]));
        assert!(demo_takes(&["date", "-u", "+%F %T"]));
        assert!(demo_takes(&["cat"]));
        assert!(!demo_takes(&["cat", "/etc/passwd"]));
        assert!(!demo_takes(&["date", "-s", "2000-01-01"]));
        assert!(!demo_takes(&["date", "--set=now"]));
        assert!(!demo_takes(&["sh"]));
    }
}
