//! `levada show`: runs a program here, with its windows on another node's screen.
//!
//! A background process owns the program, its virtual screen and the connection. The command line
//! only communicates with that process.

mod background;
mod follow;

use crate::abbreviation::expand;
use crate::destination::Destination;
use crate::failure::{Failure, LOCAL, Outcome, USAGE};
use crate::names::Names;
use crate::output::{self, Cell, Wide, note};
use crate::secret_text;
use crate::service_target::ServiceTarget;
use clap::Args;
use follow::{Follow, Mode};
use levada_client::Client;
use levada_core::check_name;
use levada_home::Home;
use levada_services::desktop::show::{
    DISPLAY, Entry, ProgramSpec, Registry, Request, Right, ShowError, State,
};
use serde_json::{Value, json};

/// Show the windows of a program on another node's screen
///
/// The program runs here, as your user. It survives a lost connection, and is then shown again.
/// Ctrl-C ends it; with --attach, Ctrl-C leaves it running.
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
        return background::run().await;
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
        Arguments { stop: Some(name), .. } => {
            registry.stop(&name).await?;
            Ok(0)
        }
        Arguments { attach: Some(name), at, detach, names, .. } => {
            let entry = registry.alive(&name).await?;
            let right = match at {
                Some(at) => Some(right(at, names).await?),
                None => None,
            };
            attach(entry, right, detach).await
        }
        arguments => start(arguments).await,
    }
}

impl From<ShowError> for Failure {
    fn from(error: ShowError) -> Self {
        Self::new(error.exit_code(), &error)
    }
}

async fn start(arguments: Arguments) -> Outcome {
    let at = arguments.at.ok_or_else(|| {
        Failure::new(USAGE, "NODE/SERVICE is missing: `levada show NODE/SERVICE -- PROGRAM`")
    })?;
    let spec = ProgramSpec {
        name: arguments.name,
        program: arguments.program,
        right: right(at, arguments.names).await?,
        clipboard: arguments.clipboard,
    };
    let connection = background::spawn(&spec, !arguments.detach).await?;
    let mode = if arguments.detach { Mode::Detach } else { Mode::Own };
    Follow::new(connection, mode)?.run().await
}

async fn attach(entry: Entry, right: Option<Right>, detach: bool) -> Outcome {
    let status = entry.status().await?;
    let hidden = matches!(status.state, State::Hidden { .. });
    if right.is_some() || hidden {
        entry.call(&Request::Show { right }).await?;
    }
    let mode = if detach { Mode::Detach } else { Mode::Attached };
    Follow::new(entry.watch().await?, mode)?.run().await
}

async fn hide(registry: &Registry, name: &str) -> Outcome {
    registry.alive(name).await?.call(&Request::Hide).await?;
    Ok(0)
}

/// Replaces `@file` and `-` by the capability's text, pins a new name, and checks the type of the
/// service: the background process has neither this standard input nor this terminal.
async fn right(at: Destination, names: Names) -> Result<Right, Failure> {
    let client = Client::new(&Home::open()?)?;
    let right = match at {
        Destination::Capability(text) => {
            let capability = secret_text::read(&text)?;
            client.check_type_of(&capability, DISPLAY).await?;
            Right::Capability(Box::new(capability))
        }
        Destination::Service(ServiceTarget { node, service }) => {
            let node = expand(&node).await?;
            let target = names.resolve(&client, &node).await?;
            client.check_type(&target, &service, DISPLAY).await?;
            Right::Request { node, service }
        }
    };
    client.close();
    Ok(right)
}

async fn list(registry: &Registry, json: bool) -> Outcome {
    let mut rows = Vec::new();
    for entry in registry.all()? {
        let state = match entry.status().await {
            Ok(status) => status.state,
            Err(_) => State::Failed { why: "its background process has ended".into(), code: LOCAL },
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
        let at = state.at().unwrap_or("-").into();
        vec![entry.name.clone().into(), Cell::state(state.word()), at, program.into()]
    };
    let cells: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
    output::columns(&["NAME", "STATE", "WHERE", "PROGRAM"], &cells, Wide::default())?;
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

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}
