//! The audit log as it grows, an entry a line.

use levada_client::control::{Request, follow};
use levada_core::{MIN_ABBREVIATION, UnixTime};
use levada_home::Home;
use serde_json::Value;

use crate::failure::Outcome;
use crate::output::{self, plain};

/// Prints entries until the node ends.
pub async fn run(home: &Home, request: &Request, json: bool) -> Outcome {
    let mut followed = follow::open(home, request).await?;
    while let Some(entry) = followed.next().await? {
        match json {
            true => output::json(entry)?,
            false => output::data(line(&entry))?,
        }
    }
    output::note("the node has ended");
    Ok(0)
}

fn line(entry: &Value) -> String {
    let time = UnixTime(entry["time"].as_u64().unwrap_or_default());
    let text = |key: &str| entry[key].as_str().map_or_else(|| "-".to_owned(), plain);
    let session: String = text("session").chars().take(8).collect();
    let words = [
        output::time(time),
        person(entry),
        text("operation"),
        text("outcome"),
        text("service"),
        session,
        text("text"),
    ];
    words.join("  ").trim_end().to_owned()
}

/// The name and the beginning of the key, or a dash for the owner.
fn person(entry: &Value) -> String {
    let Some(identity) = entry["identity"].as_str() else { return "-".to_owned() };
    let short: String = identity.chars().take(MIN_ABBREVIATION).collect();
    match entry["identity_name"].as_str() {
        Some(name) => format!("{} ({short})", plain(name)),
        None => short,
    }
}
