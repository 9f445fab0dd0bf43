//! `levada catalogue log`.

use clap::Args;
use levada_core::Identity;
use levada_core::wire::catalogue::Logged;
use serde_json::{Value, json};

use super::at::At;
use super::connection::CatalogueConnection;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Cell, Wide, plain};

/// Show the audit log: which identity published and yanked which versions
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada catalogue log --limit 20")]
pub struct Log {
    /// The maximum number of entries; the newest are shown
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

const LOG: &[&str] = &["time", "identity", "action", "outcome", "object", "version"];

pub async fn log(arguments: Log) -> Outcome {
    let read = async |connection: &mut CatalogueConnection| {
        let mut entries = Vec::new();
        let each = |entry: Logged| {
            entries.push(entry);
            Ok::<_, Failure>(())
        };
        connection.caller.audit(arguments.limit, each).await?;
        Ok(entries)
    };
    let entries = arguments.at.run(read).await?;
    if arguments.json {
        let entries: Vec<Value> = entries.iter().map(describe_entry).collect();
        output::json(json!({ "log": entries }))?;
        return Ok(0);
    }
    output::columns(LOG, &entries.iter().map(entry_row).collect::<Vec<_>>(), arguments.wide)?;
    Ok(0)
}

fn identity(entry: &Logged) -> Option<Identity> {
    Identity::try_from(entry.identity.as_slice()).ok()
}

fn describe_entry(entry: &Logged) -> Value {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    json!({
        "id": entry.number,
        "time": entry.time,
        "identity": identity(entry).map(|identity| identity.to_string()),
        "action": entry.action,
        "outcome": entry.outcome,
        "object": text(&entry.key),
        "version": text(&entry.version),
        "text": entry.text,
    })
}

fn entry_row(entry: &Logged) -> Vec<Cell> {
    let shown = |text: &String| Cell::text(if text.is_empty() { "-".into() } else { plain(text) });
    vec![
        Cell::time(entry.time),
        identity(entry).as_ref().map_or_else(|| "owner".into(), Cell::short_identity),
        plain(&entry.action).into(),
        Cell::state(plain(&entry.outcome)),
        shown(&entry.key),
        shown(&entry.version),
    ]
}
