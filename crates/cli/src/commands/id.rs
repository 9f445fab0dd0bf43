//! `levada id`: prints this identity, or rotates its key.

mod requested;
mod rotate;

use crate::failure::Outcome;
use crate::output;
use clap::{Args, Subcommand};
use levada_home::Home;
use serde_json::json;

/// Print this identity; it is generated on first use
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:
  levada id
  levada id rotate"
)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Replace the key by a new one, which the old one signs; the old key becomes invalid
    ///
    /// Nodes that know this identity accept the signature, once. Capabilities that name the old
    /// key, as node or as holder, become invalid. So do the sessions that the old key requested for
    /// others: an attacker with a copy of the key may have requested them. They are listed first.
    #[command(after_help = "Examples:
  levada id rotate
  levada id rotate --yes --keep 0123456789abcdef0123456789abcdef")]
    Rotate(rotate::Arguments),
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    if let Some(Action::Rotate(arguments)) = arguments.action {
        return rotate::run(&home, arguments).await;
    }
    let identity = home.key()?.identity().to_string();
    if arguments.json {
        output::json(json!({ "identity": identity }))?;
    } else {
        output::data(identity)?;
    }
    Ok(0)
}
