//! `levada status`: shows the running node of this home.

use crate::failure::{Failure, Outcome};
use crate::output::{self, Cell, Wide, plain};
use clap::Args;
use levada_client::control::{self, ControlError, NodeElsewhere, Request};
use levada_core::UnixTime;
use levada_core::{format_duration, shell_word};
use levada_home::Home;
use serde_json::Value;
use std::time::Duration;

/// Show the running node of this home
///
/// If it does not run, the nodes of other homes of this user on this machine are named.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada status --json")]
pub struct Arguments {
    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The keys that stand first; the others follow in alphabetical order.
const FIRST: &[&str] = &["name", "identity", "version", "process", "uptime_seconds"];

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    let status = match control::call(&home, &Request::Status).await {
        Err(ControlError::NotRunning) => return Err(not_running(&home).await),
        status => status?,
    };
    if arguments.json {
        output::json(status)?;
        return Ok(0);
    }
    let mut entries: Vec<(&String, &Value)> = status.as_object().into_iter().flatten().collect();
    let place = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    entries.sort_by_key(|(key, _)| place(key));
    let rows: Vec<(String, Cell)> = entries.iter().map(|(key, value)| row(key, value)).collect();
    let rows: Vec<(&str, Cell)> =
        rows.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    output::table(&rows, arguments.wide)?;
    Ok(0)
}

/// Reports that no node of `home` runs, with the nodes of other homes, and how to reach them.
async fn not_running(home: &Home) -> Failure {
    let mut text = ControlError::NotRunning.to_string();
    for node in control::nodes_elsewhere(home).await {
        let name = plain(&node.name);
        let process = node.process;
        text += &format!("\nnote: {name} (process {process}) runs here: {}", command_for(&node));
    }
    Failure::local(text)
}

/// The command that shows the status of a node of another home.
fn command_for(node: &NodeElsewhere) -> String {
    match &node.home {
        Some(home) => {
            format!("LEVADA_HOME={} levada status", shell_word(&home.display().to_string()))
        }
        None => "env -u LEVADA_HOME levada status".to_owned(),
    }
}

fn row(key: &str, value: &Value) -> (String, Cell) {
    let name = key.trim_end_matches("_seconds").replace('_', " ");
    (name, shown(key, value).into())
}

/// The groups of another node, and the time since when they give no rights.
fn groups(groups: &Value) -> String {
    let text = |key: &str| plain(groups[key].as_str().unwrap_or_default());
    let expires = groups["expires"].as_u64().map(UnixTime).map(output::time);
    let state = match (expires, groups["expired"].as_bool()) {
        (Some(since), Some(true)) => format!("expired since {since}: no requests and starts by it"),
        (Some(until), _) => format!("version {}, valid until {until}", groups["version"]),
        (None, _) => "none taken over yet".to_owned(),
    };
    let refused = if groups["refused"].is_null() { "" } else { "; a set was refused" };
    format!("set {} of {}: {state}{refused}", text("set"), text("from"))
}

fn shown(key: &str, value: &Value) -> String {
    match value {
        Value::Number(seconds) if key.ends_with("_seconds") => {
            format_duration(Duration::from_secs(seconds.as_u64().unwrap_or(0)))
        }
        Value::Number(time) if key == "time" => output::time(UnixTime(time.as_u64().unwrap_or(0))),
        Value::Object(forward) if key == "forwards" => {
            let text = |key: &str| plain(forward[key].as_str().unwrap_or_default());
            let listening = shown("", &forward["listening"]);
            format!("{} {listening} to {}: {}", text("service"), text("target"), text("state"))
        }
        Value::Object(_) if key == "groups" => groups(value),
        Value::Object(middlebox) if key == "middlebox" => {
            let text = |key: &str| shown("", &middlebox[key]);
            format!("{} to {}; sessions: {}", text("listening"), text("next"), text("sessions"))
        }
        Value::Null => "none".into(),
        Value::Array(items) if items.is_empty() => "none".into(),
        Value::String(text) => plain(text),
        Value::Array(items) => {
            // Forwards are objects; items of other lists are plain values.
            let key = if key == "forwards" { key } else { "" };
            items.iter().map(|item| shown(key, item)).collect::<Vec<_>>().join(", ")
        }
        other => plain(&other.to_string()),
    }
}
