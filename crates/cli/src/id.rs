//! `levada id`: who this is, and a new key for it.

use crate::failure::{Failure, NO, Outcome};
use crate::{output, waiting};
use clap::{Args, Subcommand};
use levada_core::{Clock, Identity, SystemClock};
use levada_node::control::{self, ControlError, Request};
use levada_node::home::Home;
use levada_node::known::Known;
use levada_node::running;
use levada_node::store::Store;
use serde_json::json;

/// Print this identity; it is made on first use
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
    /// Replace the key by a new one, which the old one signs; the old key is dead then
    ///
    /// Nodes that know this identity follow the signature, once. Capabilities that name the old
    /// key, as node or as holder, end.
    #[command(after_help = "Example:
  levada id rotate")]
    Rotate {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    if let Some(Action::Rotate { yes }) = arguments.action {
        return rotate(&home, yes).await;
    }
    let identity = home.key()?.identity().to_string();
    if arguments.json {
        output::json(json!({ "identity": identity }))?;
    } else {
        output::data(identity)?;
    }
    Ok(0)
}

async fn rotate(home: &Home, yes: bool) -> Outcome {
    let old = home.key()?.identity();
    warn(home, &old).await?;
    if !yes && output::ask("Rotate the key?") == Some(false) {
        return Ok(NO);
    }
    let new = match control::call(home, &Request::Rotate).await {
        Ok(answer) => {
            let new = answer["identity"].as_str().unwrap_or_default().to_owned();
            waiting::until_ready(home, &new).await?;
            new
        }
        Err(ControlError::NotRunning) => rotate_alone(home)?.to_string(),
        Err(error) => return Err(error.into()),
    };
    output::note(format_args!("{old} is dead; peers follow its signature to the new key:"));
    output::data(new)?;
    Ok(0)
}

/// Says what will end.
async fn warn(home: &Home, old: &Identity) -> Result<(), Failure> {
    let known = Known::open(&home.known_db())?;
    let granted = granted_here(home).await?;
    let count = known.capabilities_held_elsewhere(old, SystemClock.now())? + granted;
    output::note(match count {
        0 => "No capability that this home knows of names the key.".to_owned(),
        1 => "1 capability that this home knows of names the key, and will end.".to_owned(),
        _ => format!("{count} capabilities that this home knows of name the key, and will end."),
    });
    Ok(())
}

/// Sessions of this home's node that have not ended: each has a capability that names the node.
async fn granted_here(home: &Home) -> Result<u64, Failure> {
    let answer = match control::call(home, &Request::Status).await {
        Ok(status) => status["open_sessions"].as_u64().unwrap_or_default(),
        Err(ControlError::NotRunning) if home.node_db().exists() => {
            let _lock = home.lock()?;
            Store::open(&home.node_db())?.open_sessions()?
        }
        Err(ControlError::NotRunning) => 0,
        Err(error) => return Err(error.into()),
    };
    Ok(answer)
}

fn rotate_alone(home: &Home) -> Result<Identity, Failure> {
    let _lock = home.lock()?;
    let store = Store::open(&home.node_db())?;
    let (_, new) = running::rotate(home, &store)?;
    Ok(new)
}
