//! The `[catalogue.default]` of the configuration: names for the reTHINK compatibility layer of the
//! HTTP port.

use levada_catalogue::index::Defaults;
use levada_catalogue::model::Kind;
use levada_catalogue::rethink::PathType;

use super::ConfigError;
use super::reader::{Section, Value};

/// Reads the section.
pub(super) fn read(section: &Section<'_>) -> Result<Defaults, ConfigError> {
    let objects = Kind::ALL.into_iter().filter(|kind| kind.is_rethink()).map(PathType::Objects);
    let types: Vec<&str> = objects.chain([PathType::Packages]).map(PathType::as_str).collect();
    section.only(&types)?;
    section.values().iter().map(default).collect()
}

fn default(value: &Value<'_>) -> Result<(PathType, Vec<String>), ConfigError> {
    let of = value.name().parse::<PathType>().map_err(|error| value.wrong(error.to_string()))?;
    Ok((of, value.each(object)?))
}

fn object(value: &Value<'_>) -> Result<String, ConfigError> {
    Ok(value.text("the name of an object")?.to_owned())
}
