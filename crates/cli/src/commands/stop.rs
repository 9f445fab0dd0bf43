//! `levada stop`: ends the node of this home.

use crate::failure::Outcome;
use crate::{output, waiting};
use clap::Args;
use levada_client::control::{self, Request};
use levada_home::Home;
use std::time::Duration;

/// Longer than a node takes to end its sessions.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// End the node of this home, and wait until it has ended
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada stop")]
pub struct Arguments {}

pub async fn run(_: Arguments) -> Outcome {
    let home = Home::open()?;
    control::call(&home, &Request::Stop).await?;
    waiting::until_free(&home, STOP_TIMEOUT).await?;
    output::note("the node has ended");
    Ok(0)
}
