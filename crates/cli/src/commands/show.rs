//! `levada show`: runs a program here, with its windows on another node's screen.
//!
//! A background process (`supervisor.rs`) owns the program, its virtual screen and the connection, so that
//! the program outlives the command that started it. The command line only communicates with that process.

mod follow;
mod protocol;
mod registry;
mod screen;
mod supervisor;
mod tunnel;

use crate::destination::Destination;
use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::names::Names;
use crate::output::{self, note};
use clap::Args;
use follow::{Follow, Mode};
use levada_client::home::Home;
use levada_node::config::check_name;
use protocol::{ProgramSpec, Request, State};
use registry::{Entry, Registry};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The type of the services that show programs.
const DISPLAY: &str = "display";
/// How long a program may take to end before `--stop` fails.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(20);

/// Show the windows of a program on another node's screen
///
/// The program runs here, as your user. It survives a lost connection, and is then shown again. Ctrl-C
/// ends it; with --attach, Ctrl-C leaves it running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada show hall/display -- xterm
  levada show hall/display --detach --name notes -- xterm -e vi notes
  levada show --list
  levada show attic/display --attach notes      move it to another screen
  levada show --hide notes                      remove it from the screen; it keeps running
  levada show --stop notes")]
pub struct Arguments {
    /// NODE/SERVICE, or a capability: its text, @file, or - for a line of standard input
    #[arg(value_name = "NODE/SERVICE")]
    at: Option<Destination>,

    /// Run the program in the background, and print its name once it is shown
    #[arg(long, short)]
    detach: bool,

    /// The name for --attach, --hide and --stop; made from the program's name if not given
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,

    /// Share the clipboard, if the other side allows it too
    #[arg(long)]
    clipboard: bool,

    /// Attach to a program; with NODE/SERVICE, show it there
    #[arg(long, value_name = "NAME")]
    attach: Option<String>,

    /// Remove a program from the screen, and leave it running
    #[arg(long, value_name = "NAME")]
    hide: Option<String>,

    /// End a program
    #[arg(long, value_name = "NAME")]
    stop: Option<String>,

    /// List the programs that run here
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
        Arguments { attach: Some(name), at, detach, names, .. } => {
            let entry = alive(&registry, &name).await?;
            let at = match at {
                Some(at) => Some(at.resolved(names, DISPLAY).await?),
                None => None,
            };
            attach(entry, at, detach).await
        }
        arguments => start(arguments).await,
    }
}

async fn start(arguments: Arguments) -> Outcome {
    let at = arguments.at.ok_or_else(|| {
        Failure::new(USAGE, "NODE/SERVICE is missing: `levada show NODE/SERVICE -- PROGRAM`")
    })?;
    let spec = ProgramSpec {
        name: arguments.name,
        program: arguments.program,
        at: at.resolved(arguments.names, DISPLAY).await?,
        clipboard: arguments.clipboard,
        detach: arguments.detach,
    };
    let connection = supervisor::spawn(&spec).await?;
    let mode = if arguments.detach { Mode::Detach } else { Mode::Own };
    Follow::new(connection, mode)?.run().await
}

async fn attach(entry: Entry, at: Option<Destination>, detach: bool) -> Outcome {
    let status = entry.status().await?;
    let hidden = matches!(status.state, State::Hidden { .. });
    if at.is_some() || hidden {
        entry.call(&Request::Show { at }).await?;
    }
    let mode = if detach { Mode::Detach } else { Mode::Attached };
    Follow::new(entry.watch().await?, mode)?.run().await
}

async fn hide(registry: &Registry, name: &str) -> Outcome {
    alive(registry, name).await?.call(&Request::Hide).await?;
    Ok(0)
}

async fn stop(registry: &Registry, name: &str) -> Outcome {
    let entry = registry.find(name)?;
    if !entry.is_alive().await {
        // Its supervisor was killed, and the program with it: see `levada_services::exec::program`.
        registry.remove(&entry);
        return Ok(0);
    }
    entry.call(&Request::Stop).await?;
    let end = Instant::now() + STOP_TIMEOUT;
    while registry.contains(&entry) {
        if Instant::now() > end {
            return Err(Failure::local(format_args!(
                "`{name}` did not end within {} s",
                STOP_TIMEOUT.as_secs()
            )));
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
            Err(_) => State::Failed { why: "its background process has ended".into(), code: 120 },
        };
        rows.push((entry, state));
    }
    if json {
        let shows: Vec<Value> = rows.iter().map(|(entry, state)| describe(entry, state)).collect();
        output::json(json!({ "shows": shows }))?;
        return Ok(0);
    }
    if rows.is_empty() {
        note("no program runs here");
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

/// The entry of a program whose background process answers.
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
