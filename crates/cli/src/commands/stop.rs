//! `levada stop`: ends the node of this home.

use crate::failure::Outcome;
use crate::{output, waiting};
use clap::Args;
use levada_client::control::{self, Request};
use levada_core::{format_duration, parse_duration};
use levada_home::Home;
use std::time::Duration;

/// Longer than a node takes to end its sessions.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// End the node of this home, and wait until it has ended
///
/// Sessions that run have three seconds. With --drain they may run on for a time, in which the node
/// refuses further requests and starts; it ends when none runs, or the time is over. A further
/// `stop` ends it at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada stop
  levada stop --drain 1h")]
pub struct Arguments {
    /// Let running sessions end first, for at most this time, such as 90s, 10m, 1h or 7d
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_duration)]
    drain: Option<Duration>,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    let time = match arguments.drain {
        Some(time) => drain(&home, time).await?,
        None => {
            control::call(&home, &Request::Stop).await?;
            Duration::ZERO
        }
    };
    waiting::until_free(&home, time + STOP_TIMEOUT).await?;
    output::note("the node has ended");
    Ok(0)
}

async fn drain(home: &Home, time: Duration) -> Result<Duration, control::ControlError> {
    let answer = control::call(home, &Request::Drain { secs: time.as_secs() }).await?;
    let time = answer["seconds"].as_u64().map_or(time, Duration::from_secs);
    let running = answer["running_sessions"].as_u64().unwrap_or_default();
    if running > 0 {
        output::note(format_args!(
            "running sessions: {running}; the node ends when they have ended, at the latest in {}",
            format_duration(time)
        ));
    }
    Ok(time)
}
