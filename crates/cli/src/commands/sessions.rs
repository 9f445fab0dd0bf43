//! `levada sessions`: shows the sessions of this home's node, or its audit log.

mod follow;

use crate::failure::Outcome;
use crate::output::{self, Cell, Wide, plain};
use crate::since::Since;
use clap::Args;
use levada_client::control::{self, Filter, Request};
use levada_core::MIN_ABBREVIATION;
use levada_home::Home;
use serde_json::Value;

/// Show the sessions of this home's node, or its audit log
///
/// Sessions that run are first, then the newest others. Their states are: running, ready (can be
/// started), used up, expired, revoked, terminated.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada sessions --running
  levada sessions --by alice --since 7d
  levada sessions --log --limit 20
  levada sessions --log --follow --json")]
pub struct Arguments {
    /// Show the audit log instead: time, identity, operation and capability
    #[arg(long)]
    log: bool,

    /// Show each new entry of the audit log as it is added, until the node ends; with --json, one
    /// JSON object a line
    #[arg(long, requires = "log")]
    follow: bool,

    /// Only sessions that run now
    #[arg(long, conflicts_with = "log")]
    running: bool,

    /// Only sessions that this identity, or name, has requested, holds or has started; with --log,
    /// its entries
    #[arg(long, value_name = "IDENTITY")]
    by: Option<String>,

    /// Only this service
    #[arg(long, value_name = "S")]
    service: Option<String>,

    /// Only sessions that were requested, or entries that were added, since this time, such as
    /// 2026-11-30T12:00:00Z, or within a duration, such as 2h
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,

    /// The maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const SESSIONS: &[&str] =
    &["session", "service", "state", "running", "starts", "holder", "created"];
const LOG: &[&str] =
    &["time", "identity", "operation", "outcome", "service", "session", "capability", "text"];

/// The column of what runs through middleboxes.
const THROUGH: &str = "through";

pub async fn run(arguments: Arguments) -> Outcome {
    let Arguments { log, follow, running, by, service, since, limit, wide, json } = arguments;
    let home = Home::open()?;
    let filter = Filter { by, service, since: since.map(Since::seconds) };
    let request = match log {
        true => Request::Log { limit, filter, follow },
        false => Request::Sessions { limit, running, filter },
    };
    if follow {
        return follow::run(&home, &request, json).await;
    }
    let answer = control::call(&home, &request).await?;
    if json {
        output::json(answer)?;
        return Ok(0);
    }
    let (list, keys) = if log { ("log", LOG) } else { ("sessions", SESSIONS) };
    let rows = answer[list].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut keys = keys.to_vec();
    // Most nodes have no sessions through middleboxes, and the column is wide.
    if rows.iter().any(|row| !items(&row["paths"]).is_empty()) {
        keys.push(THROUGH);
    }
    let rows: Vec<Vec<Cell>> =
        rows.iter().map(|row| keys.iter().map(|key| cell(key, row)).collect()).collect();
    output::columns(&keys, &rows, wide)?;
    Ok(0)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn cell(key: &str, row: &Value) -> Cell {
    if key == THROUGH {
        let paths: Vec<String> = items(&row["paths"]).iter().map(path).collect();
        return if paths.is_empty() { "-".into() } else { paths.join("; ").into() };
    }
    match (key, &row[key]) {
        ("time" | "created", Value::Number(time)) => Cell::time(time.as_u64().unwrap_or(0)),
        // Ten characters suffice to distinguish identities; `--wide` and `--json` have all.
        ("identity" | "holder", Value::String(text)) => {
            Cell::named(row[format!("{key}_name")].as_str(), text, Some(MIN_ABBREVIATION))
        }
        ("session", Value::String(text)) => Cell::id(text, None),
        ("capability", Value::String(text)) => Cell::id(text, Some(16)),
        ("state" | "outcome", Value::String(text)) => Cell::state(plain(text)),
        (_, Value::Null) => "-".into(),
        (_, Value::String(text)) => plain(text).into(),
        (_, other) => Cell::whole(other),
    }
}

/// The middleboxes of a running session, the first next to the client, and what each was granted.
fn path(path: &Value) -> String {
    let hop = |hop: &Value| {
        let rights = hop["rights"].as_object().into_iter().flatten();
        let rights: Vec<String> = rights
            .map(|(context, right)| format!("{context}={}", right.as_str().unwrap_or_default()))
            .collect();
        let rights = if rights.is_empty() { "nothing".into() } else { plain(&rights.join(",")) };
        let identity = hop["identity"].as_str().unwrap_or_default();
        let short: String = identity.chars().take(MIN_ABBREVIATION).collect();
        match hop["identity_name"].as_str() {
            Some(name) => format!("{} ({short}) {rights}", plain(name)),
            None => format!("{short} {rights}"),
        }
    };
    let hops: Vec<String> = items(&path["middleboxes"]).iter().map(hop).collect();
    hops.join(", then ")
}
