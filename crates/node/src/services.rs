//! The services of a node: the configured ones, the default ones, and the demo.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use levada_capability::SWARM;
use levada_core::{Identity, check_name, wire};
use levada_service::{
    AllowedMiddlebox, Context, Definition, DefinitionError, Description, Registry, Service,
};
use levada_services::registry;
use levada_services::swarm::{Shares, Swarm};
use serde::Deserialize;

use crate::overrides::Overrides;
use levada_config::{Config, ConfigError, GROUP_PREFIX, Groups, ServiceSource};
use levada_home::known::Known;

/// The type, and the default name, of the service that gives access to the catalogue.
const CATALOGUE: &str = "catalogue";

/// The type and the name of the service of `shell = true`.
pub(crate) const SHELL: &str = "shell";

/// The key of `invoke` with its allowed NODE/SERVICE.
const START: &str = "start";

/// The key of `http` with the middleboxes of its sessions.
const MIDDLEBOX: &str = "middlebox";

/// The service of `up --demo`, whose commands change nothing.
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

/// A service of the node.
pub(crate) struct Offered {
    pub(crate) description: Description,
    pub(crate) service: Arc<dyn Service>,
}

/// Builds the services of a node.
pub(crate) struct Builder {
    pub(crate) registry: Registry,
    pub(crate) context: Context,
}

/// The services by name. `echo` and `clock` are among them unless `builtin = false`.
///
/// # Errors
/// [`ConfigError`] names the file, the line and the problem.
pub(crate) fn offered(
    config: &Config,
    overrides: &Overrides,
    names: (&Known, &Groups),
    builder: &Builder,
) -> Result<BTreeMap<String, Offered>, ConfigError> {
    let mut offered = BTreeMap::new();
    let mut files = Vec::new();
    for file in &overrides.services {
        files.push(ServiceSource::load(file)?);
    }
    let sources = config.services.iter().chain(&files);
    for source in sources.filter(|one| !overrides.only_catalogue || is_catalogue(one)) {
        if source.name == SWARM {
            let text = format!("`{SWARM}` is the name of the service for shares; choose another");
            return Err(source.wrong("name", text));
        }
        if offered.contains_key(&source.name) {
            return Err(source.wrong("name", format!("`{}` is offered twice", source.name)));
        }
        offered.insert(source.name.clone(), from_source(source, names, builder)?);
    }
    let has_catalogue = config.services.iter().chain(&files).any(is_catalogue);
    for kind in defaults(config, overrides.only_catalogue, has_catalogue) {
        add_default(&mut offered, Definition::plain(kind, kind), builder);
    }
    if overrides.demo
        && !overrides.only_catalogue
        && let Ok(definition) = builder.registry.parse(DEMO)
    {
        add_default(&mut offered, definition, builder);
    }
    Ok(offered)
}

/// The types of the services that a configuration adds under the same names, unless it defines
/// others with these names. `has_catalogue` is true if it defines a service of the catalogue.
pub(crate) fn defaults(
    config: &Config,
    only_catalogue: bool,
    has_catalogue: bool,
) -> impl Iterator<Item = &'static str> {
    let wants_catalogue = only_catalogue || config.catalogue.wanted == Some(true);
    let others = !only_catalogue;
    let all = [
        (CATALOGUE, wants_catalogue && !has_catalogue),
        ("clock", config.builtin && others),
        ("echo", config.builtin && others),
        (SHELL, config.shell && others),
    ];
    all.into_iter().filter_map(|(kind, is_added)| is_added.then_some(kind))
}

/// The service of the node's shares.
pub(crate) fn swarm(shares: &Arc<Shares>) -> Offered {
    let service = Arc::new(Swarm(shares.clone()));
    let description = Description::new(&Definition::plain(SWARM, SWARM), service.as_ref());
    Offered { description, service }
}

/// What the configured services lack on this machine, each with its position in the configuration.
/// They are offered nevertheless, so that a removed program does not prevent the start of a node.
///
/// # Errors
/// [`ConfigError`] if a file cannot be read.
pub fn missing(config: &Config, files: &[PathBuf]) -> Result<Vec<ConfigError>, ConfigError> {
    let files = files.iter().map(|file| ServiceSource::load(file));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut missing = Vec::new();
    let registry = registry(None);
    for source in config.services.iter().chain(&files) {
        // An invalid definition is an error of `offered`.
        let Ok(definition) = Definition::deserialize(source.table.clone()) else { continue };
        missing
            .extend(registry.missing(&definition).iter().map(|error| with_position(source, error)));
    }
    Ok(missing)
}

/// Whether a service needs the node's catalogue.
pub(crate) fn is_catalogue(source: &ServiceSource) -> bool {
    has_type(source, CATALOGUE)
}

/// Returns true if a service is a shell.
pub(crate) fn is_shell(source: &ServiceSource) -> bool {
    has_type(source, SHELL)
}

fn has_type(source: &ServiceSource, kind: &str) -> bool {
    source.table.get("type").and_then(toml::Value::as_str) == Some(kind)
}

fn from_source(
    source: &ServiceSource,
    names: (&Known, &Groups),
    builder: &Builder,
) -> Result<Offered, ConfigError> {
    let mut table = source.table.clone();
    resolve_names(&mut table, names).map_err(|(key, error)| source.wrong(key, error))?;
    let definition = Definition::deserialize(table)
        .map_err(|error| source.wrong("service", one_line(&error.to_string())))?;
    build(&definition, builder).map_err(|error| with_position(source, &error))
}

/// The error with its position in the configuration.
fn with_position(source: &ServiceSource, error: &DefinitionError) -> ConfigError {
    match error {
        DefinitionError::Type { .. } => source.wrong("type", error.to_string()),
        DefinitionError::Program { program, .. } => {
            source.wrong_text("program", program, error.to_string())
        }
        DefinitionError::Directory { .. } => source.wrong("directory", error.to_string()),
        _ => source.wrong("service", error.to_string()),
    }
}

/// Replaces pinned names by identities in a definition: in NODE/SERVICE patterns, and of
/// middleboxes. A middlebox that is a group becomes one for each of its members.
///
/// # Errors
/// The key, and the problem: a name that is not pinned, or a group that does not exist.
fn resolve_names(
    table: &mut toml::Table,
    (known, groups): (&Known, &Groups),
) -> Result<(), (&'static str, String)> {
    let named = |text: &str| known.identity_of(text).map_err(|error| error.to_string());
    if let Some(middleboxes) = table.get_mut(MIDDLEBOX).and_then(toml::Value::as_array_mut) {
        let mut all = Vec::new();
        for middlebox in std::mem::take(middleboxes) {
            let identities = middlebox_identities(&middlebox, named, groups);
            match identities.map_err(|error| (MIDDLEBOX, error))? {
                None => all.push(middlebox),
                // The service refuses sessions if it is required.
                Some(identities) if identities.is_empty() => all.push(middlebox),
                Some(identities) => all.extend(identities.iter().map(|identity| {
                    let mut one = middlebox.clone();
                    if let Some(value) = one.get_mut("identity") {
                        *value = identity.to_string().into();
                    }
                    one
                })),
            }
        }
        *middleboxes = all;
    }
    let patterns = table.get_mut(START).and_then(toml::Value::as_array_mut).into_iter().flatten();
    for pattern in patterns {
        let Some((node, service)) = pattern.as_str().and_then(|text| text.rsplit_once('/')) else {
            continue;
        };
        // The service reports an invalid pattern.
        if node != "*" && check_name(node).is_ok() {
            let identity = named(node).map_err(|error| (START, error))?;
            *pattern = format!("{identity}/{service}").into();
        }
    }
    Ok(())
}

/// The identities of a middlebox that is written as a name or a group; `None` for another text.
fn middlebox_identities(
    middlebox: &toml::Value,
    named: impl Fn(&str) -> Result<Identity, String>,
    groups: &Groups,
) -> Result<Option<Vec<Identity>>, String> {
    let Some(text) = middlebox.get("identity").and_then(toml::Value::as_str) else {
        return Ok(None);
    };
    if let Some(group) = text.strip_prefix(GROUP_PREFIX) {
        let members = groups.members_or_none(group);
        let members = members.ok_or_else(|| format!("no group has the name `{group}`"))?;
        return Ok(Some(members.keys().copied().collect()));
    }
    if check_name(text).is_ok() { named(text).map(|one| Some(vec![one])) } else { Ok(None) }
}

/// Adds a built-in definition, unless the configuration has a service of its name.
fn add_default(offered: &mut BTreeMap<String, Offered>, definition: Definition, builder: &Builder) {
    if offered.contains_key(&definition.name) {
        return;
    }
    match build(&definition, builder) {
        Ok(service) => {
            offered.insert(definition.name, service);
        }
        Err(error) => tracing::warn!(%error, "could not build a built-in service"),
    }
}

fn build(definition: &Definition, builder: &Builder) -> Result<Offered, DefinitionError> {
    let service = builder.registry.build(definition, &builder.context)?;
    Ok(Offered { description: Description::new(definition, service.as_ref()), service })
}

fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(" ")
}

/// The description in the answer to a query.
pub(crate) fn describe(description: &Description) -> wire::Service {
    wire::Service {
        name: description.name.clone(),
        category: description.category.clone(),
        r#type: description.kind.clone(),
        version: description.version.clone(),
        location: description.location.clone(),
        parameters: description.parameters.iter().map(parameter).collect(),
        framings: description.framings.iter().map(ToString::to_string).collect(),
        middleboxes: description.middleboxes.iter().map(describe_middlebox).collect(),
    }
}

fn parameter((key, meaning): &(String, String)) -> wire::Parameter {
    wire::Parameter { key: key.clone(), meaning: meaning.clone(), values: Vec::new() }
}

fn describe_middlebox(middlebox: &AllowedMiddlebox) -> wire::Middlebox {
    wire::Middlebox {
        identity: middlebox.identity.as_bytes().to_vec(),
        address: middlebox.address.clone(),
        required: middlebox.required,
        allow: middlebox.allow.clone(),
    }
}

#[cfg(test)]
mod tests;
