//! `levada inspect`: shows what a capability permits, without its secret.

use crate::directory::labelled;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Cell, Wide, plain};
use crate::secret_text;
use clap::Args;
use levada_capability::{Capability, LinkBody, Rights};
use levada_core::format_duration;
use levada_core::{Params, decode_list};
use levada_home::address;
use serde_json::{Value, json};
use std::time::Duration;

/// Show what a capability permits, and the chain of its holders; never its secret
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada inspect @cat.cap
  levada inspect lvcap1… --json")]
pub struct Arguments {
    /// The capability: its text, @file, or - for a line of standard input
    #[arg(value_name = "CAPABILITY")]
    capability: String,

    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Outcome {
    let capability = secret_text::read(&arguments.capability)?;
    if arguments.json {
        output::json(object(&capability))?;
    } else {
        print(&capability, arguments.wide)?;
    }
    Ok(0)
}

fn object(capability: &Capability) -> Value {
    let links = capability.links().zip(capability.ids());
    let links = links.map(|(link, id)| {
        json!({
            "id": id.to_string(),
            "identity": link.identity.to_string(),
            "rights": names(link.rights),
            "expires": link.expires.0,
            "uses": link.uses,
            "max_run": link.max_run,
            "parameters": pairs(&link.params),
        })
    });
    json!({
        "node": capability.node().to_string(),
        "session": capability.session().to_string(),
        "service": capability.service(),
        "addresses": capability.addresses().iter().map(|one| address::shown(one)).collect::<Vec<_>>(),
        "holder": capability.holder().to_string(),
        "rights": names(capability.rights()),
        "expires": capability.expires().0,
        "uses": capability.uses(),
        "max_run": capability.max_run(),
        "parameters": pairs(capability.params()),
        "links": links.collect::<Vec<_>>(),
    })
}

fn names(rights: Rights) -> Vec<&'static str> {
    rights.names().collect()
}

fn pairs(params: &Params) -> Value {
    params.iter().map(|(key, value)| (key.to_owned(), shown(key, value))).collect()
}

/// The JSON of a parameter: a list for `args`, a string if the value is UTF-8, else its bytes as
/// numbers.
pub fn shown(key: &str, value: &[u8]) -> Value {
    if key == Params::ARGS
        && let Ok(list) = decode_list(value)
    {
        return list.into();
    }
    std::str::from_utf8(value).map_or_else(|_| value.into(), Value::from)
}

fn print(capability: &Capability, wide: Wide) -> Result<(), Failure> {
    let addresses: Vec<String> =
        capability.addresses().iter().map(|one| plain(address::shown(one))).collect();
    let mut rows: Vec<(&str, Cell)> = vec![
        ("service", plain(capability.service()).into()),
        ("node", Cell::identity(&capability.node())),
        ("addresses", addresses.join(", ").into()),
        ("session", Cell::id(&capability.session().to_string(), None)),
        ("holder", Cell::identity(&capability.holder())),
        ("rights", names(capability.rights()).join(", ").into()),
        ("expires", output::time(capability.expires()).into()),
        ("uses", capability.uses().to_string().into()),
        ("max run", capability.max_run().map(running_time).unwrap_or_default().into()),
    ];
    rows.extend(parameter_rows(capability.params()));
    let links: Vec<&LinkBody> = capability.links().collect();
    if links.len() > 1 {
        let holders =
            links.iter().map(|link| format!("{} {}", labelled(&link.identity), link.rights));
        rows.extend(holders.map(|holder| ("passed to", holder.into())));
    }
    rows.retain(|(_, value)| *value != Cell::text(""));
    output::table(&rows, wide)
}

fn running_time(seconds: u64) -> String {
    format_duration(Duration::from_secs(seconds))
}

fn parameter_rows(params: &Params) -> impl Iterator<Item = (&'static str, Cell)> {
    params.iter().map(|(key, value)| {
        // JSON escapes only the control characters of the C0 set; `plain` escapes the others.
        let value = plain(&shown(key, value).to_string());
        ("parameter", format!("{} = {value}", plain(key)).into())
    })
}
