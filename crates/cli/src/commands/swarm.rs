//! `levada swarm`: shows and ends the shares of this home's node.

use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::output::{self, Cell, Wide, plain};
use clap::{Args, Subcommand};
use levada_capability::Ticket;
use levada_client::control::{self, Request};
use levada_core::{MIN_ABBREVIATION, format_size};
use levada_home::Home;
use serde_json::Value;

/// Show the shares of this home's node, stop them, and revoke their tickets
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada swarm ls
  levada swarm status 3
  levada swarm stop 3
  levada swarm revoke 0123456789abcdef")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the shares, and the packages of catalogues that the node provides
    #[command(after_help = "Example:
  levada swarm ls --json")]
    Ls {
        #[command(flatten)]
        wide: Wide,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show one share with its tickets
    #[command(after_help = "Example:
  levada swarm status 3")]
    Status {
        /// The number of the share, as `levada swarm ls` prints it
        #[arg(value_name = "SHARE")]
        share: i64,

        #[command(flatten)]
        wide: Wide,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Stop a share: its tickets are revoked, and transfers end; the files stay as they are
    #[command(after_help = "Example:
  levada swarm stop 3")]
    Stop {
        /// The number of the share, as `levada swarm ls` prints it
        #[arg(value_name = "SHARE")]
        share: i64,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Revoke a ticket and the capabilities that it was exchanged for; transfers with them end
    #[command(after_help = "Examples:
  levada swarm revoke lvtkt1…
  levada swarm revoke 0123456789abcdef")]
    Revoke {
        /// The ticket, or its id, as `levada swarm status` prints it
        #[arg(value_name = "TICKET")]
        ticket: String,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    match arguments.action {
        Action::Ls { wide, json } => list(&home, wide, json).await,
        Action::Status { share, wide, json } => status(&home, share, wide, json).await,
        Action::Stop { share, json } => {
            let answer = control::call(&home, &Request::StopShare { share }).await?;
            ended(answer, json, &format!("Share {share} is stopped."))
        }
        Action::Revoke { ticket, json } => {
            let ticket = id_of(&ticket)?;
            let text = format!("The ticket {ticket} is revoked.");
            let answer = control::call(&home, &Request::RevokeTicket { ticket }).await?;
            ended(answer, json, &text)
        }
    }
}

const SHARES: &[&str] =
    &["share", "name", "length", "state", "peers", "sent", "tickets", "created"];
const STATUS: &[&str] = &[
    "share",
    "name",
    "root",
    "length",
    "mode",
    "transport",
    "state",
    "sent",
    "sent_rate",
    "providers",
    "expelled",
    "unreadable",
    "created",
];
/// Chunks that the coordinator has read, fetched from providers, and sent, those of them that were
/// in its cache, and the bytes in a second that it fetches now.
const MEDIATED: &[&str] =
    &["read", "read_again", "fetched", "chunks_sent", "cache_hits", "received_rate"];
const PEERS: &[&str] = &["peer", "role", "chunks", "transport"];
const PROVIDED: &[&str] = &["object", "version", "catalogue", "length", "connected", "until"];
const TICKETS: &[&str] = &["ticket", "exchanged", "peers", "expires", "bound", "revoked"];

async fn list(home: &Home, wide: Wide, json: bool) -> Outcome {
    let answer = control::call(home, &Request::Shares).await?;
    if json {
        output::json(answer)?;
        return Ok(0);
    }
    let rows: Vec<Vec<Cell>> = items(&answer["shares"])
        .iter()
        .map(|share| SHARES.iter().map(|key| cell(key, share)).collect())
        .collect();
    output::columns(SHARES, &rows, wide)?;
    let provided = items(&answer["provided"]).iter();
    let rows = provided.map(|one| PROVIDED.iter().map(|key| cell(key, one)).collect());
    let rows: Vec<Vec<Cell>> = rows.collect();
    if !rows.is_empty() {
        output::data("")?;
        output::columns(PROVIDED, &rows, wide)?;
    }
    Ok(0)
}

async fn status(home: &Home, number: i64, wide: Wide, json: bool) -> Outcome {
    let answer = control::call(home, &Request::Shares).await?;
    let found = items(&answer["shares"]).iter().find(|share| share["share"] == number);
    let share = found.ok_or_else(|| {
        Failure::new(NO, format!("this node has no share {number}; `levada swarm ls` lists them"))
    })?;
    if json {
        output::json(share.clone())?;
        return Ok(0);
    }
    let keys = STATUS.iter().chain(if is_mediated(share) { MEDIATED } else { &[] });
    output::table(&keys.map(|key| (*key, cell(key, share))).collect::<Vec<_>>(), wide)?;
    let rows: Vec<Vec<Cell>> = items(&share["tickets"])
        .iter()
        .map(|ticket| TICKETS.iter().map(|key| cell(key, ticket)).collect())
        .collect();
    output::data("")?;
    output::columns(TICKETS, &rows, wide)?;
    let served = &share["served"];
    let rows = items(&served["peers"]).iter().map(|peer| {
        let identity = peer["identity"].as_str().unwrap_or_default();
        let named = Cell::named(peer["name"].as_str(), identity, None);
        let transport = if peer["udp"] == true { "tcp and udp" } else { "tcp" };
        let chunks = format!("{}/{}", peer["chunks"], served["chunks"]);
        let role = if peer["provider"] == true { "provider" } else { "peer" };
        vec![named, role.into(), Cell::whole(chunks), transport.into()]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        output::data("")?;
        output::columns(PEERS, &rows, wide)?;
    }
    if let Some(reason) = share["not_served"].as_str() {
        output::note(plain(&format!("not served: {reason}")));
    }
    for chunk in items(&served["unreadable"]).iter().take(20) {
        let reason = plain(chunk["reason"].as_str().unwrap_or_default());
        output::note(format_args!("chunk {} cannot be read: {reason}", chunk["chunk"]));
    }
    Ok(0)
}

/// Prints that something has ended, and how many transfers ended with it.
fn ended(answer: Value, json: bool, text: &str) -> Outcome {
    if json {
        output::json(answer)?;
        return Ok(0);
    }
    output::note(format_args!("{text} Transfers that ended with it: {}.", answer["ended"]));
    Ok(0)
}

/// The id of a ticket: of its text, or given in at least 8 hexadecimal digits.
fn id_of(text: &str) -> Result<String, Failure> {
    if text.starts_with("lvtkt1") {
        return Ok(Ticket::id(&Ticket::hash(Ticket::from_text(text)?.secret())));
    }
    let is_hex = text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    if is_hex && (8..=16).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(Failure::new(USAGE, "not a ticket: give its text, or 8 to 16 digits of its id"))
}

fn is_mediated(share: &Value) -> bool {
    !share["settings"]["mediated"].is_null()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn cell(key: &str, row: &Value) -> Cell {
    let served = &row["served"];
    match (key, &row[key]) {
        ("created" | "expires" | "revoked" | "until", Value::Number(time)) => {
            Cell::time(time.as_u64().unwrap_or(0))
        }
        ("ticket", Value::String(text)) => Cell::id(text, None),
        ("mode", _) => if is_mediated(row) { "mediated" } else { "direct" }.into(),
        ("transport", _) => match row["settings"]["udp"].as_str() {
            Some("control") => "control udp, data tcp".into(),
            Some("data") => "control tcp, data udp".into(),
            _ => "tcp".into(),
        },
        ("length", length) => size(length, ""),
        ("sent_rate" | "received_rate", _) => size(&served[key], "/s"),
        ("sent", _) => size(&served["sent"], ""),
        ("providers", _) => {
            let peers = items(&served["peers"]);
            let providers = peers.iter().filter(|peer| peer["provider"] == true).count();
            format!("{providers} of {} peers", peers.len()).into()
        }
        ("read" | "read_again" | "fetched" | "chunks_sent" | "cache_hits", _) => {
            served[key].as_u64().map_or_else(|| "-".into(), Cell::whole)
        }
        ("tickets", Value::Array(all)) => Cell::whole(all.len()),
        ("state", _) => state(served),
        ("peers", _) if row["bound"].is_null() && row["expires"].is_null() => {
            Cell::whole(items(&served["peers"]).len())
        }
        ("expelled" | "unreadable", _) => Cell::whole(items(&served[key]).len()),
        ("bound", Value::String(text)) => {
            Cell::named(row["bound_name"].as_str(), text, Some(MIN_ABBREVIATION))
        }
        (_, Value::Null) => "-".into(),
        (_, Value::String(text)) => plain(text).into(),
        (_, other) => Cell::whole(other),
    }
}

fn state(served: &Value) -> Cell {
    match served {
        Value::Null => Cell::state("not served"),
        served if !items(&served["unreadable"]).is_empty() => Cell::state("damaged"),
        _ => Cell::state("served"),
    }
}

/// A number of bytes, if it is known, followed by `unit`.
fn size(bytes: &Value, unit: &str) -> Cell {
    let shown = |bytes| Cell::whole(format!("{}{unit}", format_size(bytes)));
    bytes.as_u64().map_or_else(|| "-".into(), shown)
}
