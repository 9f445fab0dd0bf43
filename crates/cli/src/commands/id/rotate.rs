//! `levada id rotate`: replaces the key by a new one, signed by the old one.

use std::sync::Arc;

use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::{output, waiting};
use clap::Args;
use levada_capability::SessionId;
use levada_client::Client;
use levada_client::control::{self, ControlError, Request};
use levada_core::{Clock, Succession, SystemClock};
use levada_home::Home;
use levada_node::store::Store;

use super::requested;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Do not ask for confirmation; required without a terminal
    #[arg(long)]
    yes: bool,

    /// Keep this session, which the old key requested for another identity; may be repeated, and
    /// abbreviated to 8 digits
    #[arg(long, value_name = "SESSION")]
    keep: Vec<String>,
}

pub async fn run(home: &Home, arguments: Arguments) -> Outcome {
    let Arguments { yes, keep } = arguments;
    if keep.len() > Succession::MAX_KEEP {
        let text = format!("--keep: at most {} sessions can be kept", Succession::MAX_KEEP);
        return Err(Failure::new(USAGE, text));
    }
    let client = Arc::new(Client::new(home)?);
    let old = client.identity();
    warn(home, &client).await?;
    let pins = requested::pinned_nodes(&client).await?;
    let requested = requested::query_all(&client, &pins).await;
    let keep = requested.find(&keep)?;
    requested.show(&keep);
    if !yes && !output::is_attended() {
        let text = "standard input is not a terminal, so confirmation is impossible: use `levada id rotate --yes`";
        return Err(Failure::new(USAGE, text));
    }
    if !yes && output::ask("Rotate the key?") != Some(true) {
        return Ok(NO);
    }
    let new = replace(home, &keep).await?;
    output::note(format_args!(
        "{old} is no longer valid; peers follow its signature to the new key:"
    ));
    output::data(&new)?;
    // A new client, which has the new key.
    requested::announce_succession(&Arc::new(Client::new(home)?), &pins).await;
    Ok(0)
}

/// Replaces the key; through the node of this home if it runs.
async fn replace(home: &Home, keep: &[SessionId]) -> Result<String, Failure> {
    let request = Request::Rotate { keep: keep.iter().map(ToString::to_string).collect() };
    match control::call(home, &request).await {
        Ok(answer) => {
            let new = answer["identity"].as_str().unwrap_or_default().to_owned();
            waiting::until_ready(home, &new).await?;
            Ok(new)
        }
        Err(ControlError::NotRunning) => {
            let _lock = home.lock()?;
            let store = Store::open(&home.node_db())?;
            Ok(levada_node::rotate(home, &store, keep)?.1.to_string())
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints how many capabilities will end.
async fn warn(home: &Home, client: &Client) -> Result<(), Failure> {
    let old = client.identity();
    let now = SystemClock.now();
    let elsewhere = client.with_known(move |known| known.capabilities_held_elsewhere(&old, now));
    let count = granted_here(home).await? + elsewhere.await?;
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
