//! `levada status`: shows the running node of this home.

use crate::failure::Outcome;
use crate::output::{self, plain};
use clap::Args;
use levada_client::control::{self, Request};
use levada_core::UnixTime;
use levada_core::format_duration;
use levada_home::Home;
use serde_json::Value;
use std::time::Duration;

/// Show the running node of this home
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada status --json")]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let status = control::call(&Home::open()?, &Request::Status).await?;
    if arguments.json {
        output::json(status)?;
        return Ok(0);
    }
    let entries = status.as_object().into_iter().flatten();
    let rows: Vec<(String, String)> =
        entries.map(|(key, value)| (key.replace('_', " "), shown(key, value))).collect();
    let rows: Vec<(&str, String)> =
        rows.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    output::table(&rows)?;
    Ok(0)
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
        Value::Object(middlebox) if key == "middlebox" => {
            let text = |key: &str| shown("", &middlebox[key]);
            format!("{} to {}; sessions: {}", text("listening"), text("next"), text("sessions"))
        }
        Value::Null => "none".into(),
        Value::String(text) => plain(text),
        Value::Array(items) => {
            // Forwards are objects; items of other lists are plain values.
            let key = if key == "forwards" { key } else { "" };
            items.iter().map(|item| shown(key, item)).collect::<Vec<_>>().join(", ")
        }
        other => plain(&other.to_string()),
    }
}
