//! `levada input`: use this keyboard and pointer on another node's screen.

mod link;
mod source;

use crate::attach::Signals;
use crate::destination::Destination;
use crate::failure::{Failure, Outcome, USAGE};
use crate::names::Names;
use clap::Args;
use levada_core::Framing;
use levada_node::client::{Client, Running};
use levada_node::home::Home;
use levada_services::input::Combination;
use levada_session::{Class, Stream};
use source::Source;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;

/// How long the last words to the node may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Use this keyboard and pointer on another node's screen
///
/// Everything typed and pointed here goes there until the keys that let go are pressed. Nothing stays
/// down there, however it ends.
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
    place: Destination,

    /// The keys that let go
    #[arg(long, value_name = "KEYS", default_value_t = Combination::default())]
    release: Combination,

    /// Read events from a file, or from standard input (-), instead of this screen
    #[arg(long, value_name = "FILE", conflicts_with = "release")]
    events: Option<PathBuf>,

    /// The screen here whose keyboard and pointer are used, such as :0; DISPLAY if not given
    #[arg(long, value_name = "DISPLAY", conflicts_with = "events")]
    display: Option<String>,

    /// How messages become records: auto, or block:N with N from 64 to 4096
    #[arg(long)]
    framing: Option<Framing>,

    #[command(flatten)]
    names: Names,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let both = matches!(&arguments.place, Destination::Capability(text) if text.as_str() == "-");
    if both && arguments.events.as_deref().is_some_and(|file| file.as_os_str() == "-") {
        return Err(Failure::new(USAGE, "standard input cannot be the capability and the events"));
    }
    let client = Client::new(&Home::open()?)?;
    let capability =
        arguments.place.capability(&client, arguments.names, arguments.framing, "input").await?;
    // Connected before anything is taken: whoever is refused keeps his keyboard.
    let running = client.connect_as(&capability, Class::Interactive).await?;
    let Running { stream, connection, .. } = running;
    let outcome = attach(stream, &arguments).await;
    client.close();
    connection.close(0, "");
    let _ = timeout(FAREWELL, connection.flushed()).await;
    outcome
}

async fn attach(stream: Stream, arguments: &Arguments) -> Outcome {
    let mut signals = Signals::new()?;
    let source = tokio::select! {
        source = Source::open(arguments) => source?,
        code = signals.end() => return Ok(code),
    };
    link::run(stream, source, signals).await
}
