//! `levada input`: uses this keyboard and pointer on another node's screen.

mod connection;
mod source;

use crate::attach::Signals;
use crate::destination::{Destination, Search};
use crate::failure::{Failure, Outcome, PROTOCOL, UNREACHABLE, USAGE};
use crate::names::Names;
use crate::output::{note, plain};
use clap::Args;
use levada_client::{Client, Running};
use levada_core::{Backoff, Framing, format_duration};
use levada_home::Home;
use levada_session::Class;
use source::{Events, Source};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long the close may take to reach the node.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Use this keyboard and pointer on another node's screen
///
/// All input goes to that screen until the release keys are pressed. No key or button stays pressed
/// there, however it ends. A lost connection is re-established; meanwhile keyboard and pointer work
/// here.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada input hall/input
  levada input hall/input --release ScrollLock
  levada input @input.cap
  echo 'type hello' | levada input hall/input --events -

Lines of --events: tap KEYS, type TEXT, down KEY, up KEY, press N, release N, click N,
wheel up|down|left|right, move DX DY, goto X Y, wait 50ms, # remark")]
pub struct Arguments {
    /// NODE/SERVICE, or a capability: its text, @file, or - for a line of standard input
    #[arg(value_name = "NODE/SERVICE")]
    at: Destination,

    #[command(flatten)]
    source: source::Options,

    /// How messages become records: auto, or block:N with N from 64 to 4096
    #[arg(long)]
    framing: Option<Framing>,

    #[command(flatten)]
    names: Names,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let reads_capability =
        matches!(&arguments.at, Destination::Capability(text) if text.as_str() == "-");
    if reads_capability && arguments.source.reads_standard_input() {
        return Err(Failure::new(USAGE, "standard input cannot be the capability and the events"));
    }
    let client = Client::new(&Home::open()?)?;
    let mut signals = Signals::new()?;
    let mut events = Events::default();
    let mut backoff = Backoff::default();
    loop {
        let start = Instant::now();
        let outcome = attach(&client, &arguments, &mut events, &mut signals).await;
        let Err(failure) = &outcome else { return outcome };
        if !events.are_open || ![UNREACHABLE, PROTOCOL].contains(&failure.code()) {
            return outcome;
        }
        // Keyboard and pointer work here while the node is unreachable; lines of --events wait.
        events.source.take_if(|source| matches!(source, Source::Screen(_)));
        let pause = backoff.pause_after(start.elapsed());
        let text = plain(failure.text());
        note(format_args!("levada: {text}; trying again in {}", format_duration(pause)));
        tokio::select! {
            () = sleep(pause) => {}
            code = signals.end() => return Ok(code),
        }
    }
}

/// Runs one connection to the node until it ends.
async fn attach(
    client: &Client,
    arguments: &Arguments,
    events: &mut Events,
    signals: &mut Signals,
) -> Outcome {
    let capability = arguments
        .at
        .capability(client, (arguments.names, Search::Network), arguments.framing, "input")
        .await?;
    // Connected before the keyboard is grabbed: a client that is refused never loses it.
    let running = client.connect_as(&capability, Class::Interactive).await?;
    let Running { stream, connection, .. } = running;
    if events.source.is_none() {
        events.source = tokio::select! {
            opened = Source::open(&arguments.source) => Some(opened?),
            code = signals.end() => return Ok(code),
        };
        events.are_open = true;
    }
    let outcome = connection::run(stream, events, signals).await;
    client.close();
    connection.close(0, "");
    let _ = timeout(CLOSE_TIMEOUT, connection.flushed()).await;
    outcome
}
