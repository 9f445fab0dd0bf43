//! `levada query`: shows the services of a node.

use crate::directory::name_of;
use crate::failure::{Failure, Outcome};
use crate::names::Names;
use crate::output::{self, Cell, Wide, plain};
use crate::seen::note_services;
use crate::service_target::NodeOrService;
use clap::Args;
use levada_client::Client;
use levada_core::wire::{Middlebox, Parameter, Service};
use levada_core::{Identity, listed};
use levada_home::Home;
use serde_json::{Value, json};

/// The maximum number of values of a parameter that are shown.
const MAX_VALUES: usize = 16;

/// Show type, version, location, parameters and middleboxes of a service, or of all services of a
/// node
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada query alpha/exec
  levada query alpha --json")]
pub struct Arguments {
    /// NODE is a nickname, a name that `levada ls` shows, or IDENTITY@host:port; without /SERVICE,
    /// all of its services
    #[arg(value_name = "NODE/SERVICE")]
    target: NodeOrService,

    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    let client = Client::new(&home)?;
    let NodeOrService { node, service } = &arguments.target;
    let target = arguments.names.resolve(&client, node).await?;
    let services = client.query(&target, service.as_deref()).await?;
    client.close();
    if service.is_none() {
        note_services(&home, [(&target.identity, &services[..])]);
    }
    if arguments.json {
        let list: Vec<Value> = services.iter().map(describe).collect();
        output::json(json!({ "node": target.identity.to_string(), "services": list }))?;
        return Ok(0);
    }
    for (index, service) in services.iter().enumerate() {
        if index > 0 {
            output::data("")?;
        }
        print(service, arguments.wide)?;
    }
    Ok(0)
}

/// The JSON of a service for `--json`.
pub fn describe(service: &Service) -> Value {
    let parameters = service.parameters.iter();
    let parameters = parameters.map(describe_parameter);
    json!({
        "name": service.name,
        "type": service.r#type,
        "category": service.category,
        "version": service.version,
        "location": service.location,
        "parameters": parameters.collect::<Vec<_>>(),
        "framings": service.framings,
        "middleboxes": service.middleboxes.iter().map(describe_middlebox).collect::<Vec<_>>(),
    })
}

fn describe_parameter(one: &Parameter) -> Value {
    json!({ "key": one.key, "meaning": one.meaning, "values": one.values })
}

fn describe_middlebox(one: &Middlebox) -> Value {
    json!({
        "identity": identity(one),
        "address": (!one.address.is_empty()).then_some(&one.address),
        "required": one.required,
        "allow": one.allow,
    })
}

/// The identity as text; the client has checked its form.
fn identity(one: &Middlebox) -> String {
    Identity::try_from(one.identity.as_slice())
        .map(|identity| identity.to_string())
        .unwrap_or_default()
}

/// A middlebox on one line: who, where, whether it must be used, and the most that it may be
/// granted.
fn line(one: &Middlebox) -> String {
    let at = if one.address.is_empty() { String::new() } else { format!("@{}", one.address) };
    let required = if one.required { "required" } else { "allowed" };
    let allow = if one.allow.is_empty() { "nothing" } else { &one.allow };
    let key = identity(one);
    let name = key.parse().ok().as_ref().and_then(name_of);
    let named = name.map_or_else(|| format!("{key}{at}"), |name| format!("{name} ({key}{at})"));
    plain(&format!("{named} {required}, may see {allow}"))
}

/// A parameter on one line: its key, its meaning, and the values that are allowed.
fn parameter_line(one: &Parameter) -> String {
    let values: Vec<&str> = one.values.iter().map(String::as_str).collect();
    let colon = if values.is_empty() { "" } else { ": " };
    plain(&format!("{}: {}{colon}{}", one.key, one.meaning, listed(&values, MAX_VALUES)))
}

fn print(service: &Service, wide: Wide) -> Result<(), Failure> {
    let framings: Vec<String> = service.framings.iter().map(|text| plain(text)).collect();
    let mut rows: Vec<(&str, String)> = vec![
        ("service", plain(&service.name)),
        ("type", plain(&service.r#type)),
        ("category", plain(&service.category)),
        ("version", plain(&service.version)),
        ("location", plain(&service.location)),
        ("framing", framings.join(", ")),
    ];
    rows.extend(service.parameters.iter().map(|one| ("parameter", parameter_line(one))));
    rows.extend(service.middleboxes.iter().map(|one| ("middlebox", line(one))));
    rows.retain(|(_, value)| !value.is_empty());
    let rows: Vec<(&str, Cell)> =
        rows.into_iter().map(|(name, value)| (name, value.into())).collect();
    output::table(&rows, wide)
}
