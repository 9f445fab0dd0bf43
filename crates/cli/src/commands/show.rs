//! `levada show`: a program that runs here, its windows on another node's screen.
//!
//! A background process keeps the program, its virtual screen and the connection (`keeper.rs`), so that
//! the program outlives whoever started it. What is run on the command line only speaks to it.

mod follow;
mod registry;
mod screen;
mod session;
mod supervisor;
mod tunnel;

use crate::destination::Destination;
use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::names::Names;
use crate::output::{self, note};
use clap::Args;
use follow::{Follow, Mode};
use levada_node::config::check_name;
use levada_node::home::Home;
use registry::{Entry, Registry};
use serde_json::{Value, json};
use session::{Order, Request, State};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The type of the services at which programs are shown.
const DISPLAY: &str = "display";
/// How long a program may take to end before `--stop` says that it does not.
const STOPPING: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(20);

/// Show the windows of a program on another node's screen
///
/// The program runs here, in your name. It survives a connection that is cut, and is shown again. Ctrl-C
/// ends it; with --attach, Ctrl-C leaves it running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada show hall/display -- xterm
  levada show hall/display --detach --name notes -- xterm -e vi notes
  levada show --list
  levada show attic/display --attach notes      on another screen from now on
  levada show --hide notes                      on no screen, still running
  levada show --stop notes")]
pub struct Arguments {
    /// NODE/SERVICE, or a capability: its text, @file, or - for a line of standard input
    #[arg(value_name = "NODE/SERVICE")]
    place: Option<Destination>,

    /// Let the program run in the background, shown; prints its name
    #[arg(long, short)]
    detach: bool,

    /// What to call it, for --attach, --hide and --stop; the program's name if not given
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,

    /// Let the clipboard pass, if the other side allows it too
    #[arg(long)]
    clipboard: bool,

    /// Come back to a program; with NODE/SERVICE, show it there from now on
    #[arg(long, value_name = "NAME")]
    attach: Option<String>,

    /// Take a program off the screen, and leave it running
    #[arg(long, value_name = "NAME")]
    hide: Option<String>,

    /// End a program
    #[arg(long, value_name = "NAME")]
    stop: Option<String>,

    /// List the programs that are kept here
    #[arg(long)]
    list: bool,

    /// Print one JSON object (with --list)
    #[arg(long, requires = "list")]
    json: bool,

    /// Be the background process
    #[arg(long, hide = true)]
    keep: bool,

    #[command(flatten)]
    names: Names,

    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

pub async fn run(arguments: Arguments) -> Outcome {
    if arguments.keep {
        return supervisor::run().await;
    }
    let chosen = [
        !arguments.program.is_empty(),
        arguments.attach.is_some(),
        arguments.hide.is_some(),
        arguments.stop.is_some(),
        arguments.list,
    ];
    if chosen.iter().filter(|one| **one).count() != 1 {
        let text = "give one of: `NODE/SERVICE -- PROGRAM`, --attach, --hide, --stop, --list";
        return Err(Failure::new(USAGE, text));
    }
    let registry = Registry::open(&Home::open()?)?;
    match arguments {
        Arguments { list: true, json, .. } => list(&registry, json).await,
        Arguments { hide: Some(name), .. } => hide(&registry, &name).await,
        Arguments { stop: Some(name), .. } => stop(&registry, &name).await,
        Arguments { attach: Some(name), place, detach, names, .. } => {
            let entry = alive(&registry, &name).await?;
            let at = match place {
                Some(place) => Some(place.resolved(names, DISPLAY).await?),
                None => None,
            };
            attach(entry, at, detach).await
        }
        arguments => start(arguments).await,
    }
}

async fn start(arguments: Arguments) -> Outcome {
    let place = arguments.place.ok_or_else(|| {
        Failure::new(USAGE, "say where to show it: `levada show NODE/SERVICE -- PROGRAM`")
    })?;
    let order = Order {
        name: arguments.name,
        program: arguments.program,
        at: place.resolved(arguments.names, DISPLAY).await?,
        clipboard: arguments.clipboard,
        detach: arguments.detach,
    };
    let keeper = supervisor::spawn(&order).await?;
    let mode = if arguments.detach { Mode::Detach } else { Mode::Own };
    Follow::new(keeper, mode)?.run().await
}

async fn attach(entry: Entry, at: Option<Destination>, detach: bool) -> Outcome {
    let status = entry.status().await?;
    let hidden = matches!(status.state, State::Hidden { .. });
    if at.is_some() || hidden {
        entry.ask(&Request::Show { at }).await?;
    }
    let mode = if detach { Mode::Detach } else { Mode::Visitor };
    Follow::new(entry.watch().await?, mode)?.run().await
}

async fn hide(registry: &Registry, name: &str) -> Outcome {
    alive(registry, name).await?.ask(&Request::Hide).await?;
    Ok(0)
}

async fn stop(registry: &Registry, name: &str) -> Outcome {
    let entry = registry.find(name)?;
    if !entry.is_alive().await {
        // Its keeper was killed, and what that had started has ended with it: see `levada_services::exec::program`.
        registry.remove(&entry);
        return Ok(0);
    }
    entry.ask(&Request::Stop).await?;
    let end = Instant::now() + STOPPING;
    while registry.is_there(&entry) {
        if Instant::now() > end {
            return Err(Failure::local(format_args!("`{name}` does not end")));
        }
        sleep(STEP).await;
    }
    Ok(0)
}

async fn list(registry: &Registry, json: bool) -> Outcome {
    let mut rows = Vec::new();
    for entry in registry.all()? {
        let state = match entry.status().await {
            Ok(status) => status.state,
            Err(_) => State::Failed { why: "its keeper is gone".into(), code: 120 },
        };
        rows.push((entry, state));
    }
    if json {
        let shows: Vec<Value> = rows.iter().map(|(entry, state)| describe(entry, state)).collect();
        output::json(json!({ "shows": shows }))?;
        return Ok(0);
    }
    if rows.is_empty() {
        note("no programs are kept here");
        return Ok(0);
    }
    let cells = |(entry, state): &(Entry, State)| {
        let program = output::plain(&entry.program.join(" "));
        vec![entry.name.clone(), state.word().into(), state.at().unwrap_or("-").into(), program]
    };
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    output::columns(&["NAME", "STATE", "WHERE", "PROGRAM"], &cells)?;
    Ok(0)
}

fn describe(entry: &Entry, state: &State) -> Value {
    json!({
        "name": entry.name,
        "state": state.word(),
        "where": state.at(),
        "program": entry.program,
        "process": entry.process,
    })
}

/// The entry of a program that is kept.
async fn alive(registry: &Registry, name: &str) -> Result<Entry, Failure> {
    let entry = registry.find(name)?;
    if entry.is_alive().await {
        return Ok(entry);
    }
    let text = format!(
        "the background process of `{name}` was killed, and the program with it; \
         `levada show --stop {name}` frees the name"
    );
    Err(Failure::new(NO, text))
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}
