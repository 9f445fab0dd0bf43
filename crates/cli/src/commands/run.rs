//! `levada run`: requests a session and attaches to it.

use crate::attach::{self, Escape};
use crate::failure::Outcome;
use crate::names::Names;
use crate::parameters::Parameters;
use crate::seen::Seen;
use crate::service_target::ServiceTarget;
use clap::Args;
use levada_client::{Client, RequestSpec};
use levada_core::{Framing, Identity};
use levada_home::Home;
use std::io::{self, IsTerminal};

/// The type of the services that are login shells, and the usual name of one.
const SHELL: &str = "shell";

/// Use a service: request a session and connect to it
///
/// Standard input, output and error are those of the program, and so is the exit code.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada run alpha/clock
  levada run alpha/exec uname -a
  levada run alpha/exec --pty top
  levada run alpha/shell               on a terminal, a shell has one, too
  levada run alpha/exec -- -x          an argument that begins with - must follow --")]
pub struct Arguments {
    /// NODE is a nickname, a name that `levada ls` shows, or IDENTITY@host:port
    #[arg(value_name = "NODE/SERVICE")]
    at: ServiceTarget,

    /// How messages become records: auto, or block:N with N from 64 to 4096
    #[arg(long)]
    framing: Option<Framing>,

    /// The character that begins an escape sequence on a terminal (~. ends the session, ~? shows
    /// all), or none
    #[arg(long, value_name = "CHARACTER", default_value_t)]
    escape: Escape,

    /// Give a shell no terminal, also if this command has one
    #[arg(long, conflicts_with = "pty")]
    no_pty: bool,

    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    parameters: Parameters,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let mut spec = RequestSpec {
        service: arguments.at.service,
        params: arguments.parameters.pairs()?,
        framing: arguments.framing,
        uses: 1,
        ..RequestSpec::default()
    };
    let home = Home::open()?;
    let client = Client::new(&home)?;
    let target = arguments.names.resolve(&client, &arguments.at.node).await?;
    let implied = !arguments.no_pty && arguments.parameters.may_imply_terminal();
    if implied && is_on_terminal() && is_shell(&home, &target.identity, &spec.service) {
        arguments.parameters.add_terminal(&mut spec.params)?;
    }
    let pty = spec.params.value("pty").is_some();
    let running = client.request_and_start(&target, spec).await?;
    attach::attach(&client, running, pty, arguments.escape).await
}

/// Returns true if neither input nor output is redirected.
fn is_on_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Returns true for a service of type `shell`, as far as this home has seen its type, and otherwise
/// for one of that name. The node is not asked: that would take one more round trip.
fn is_shell(home: &Home, node: &Identity, service: &str) -> bool {
    let seen = Seen::read(home);
    let services = seen.services(node);
    let kind = services.iter().find(|(name, _)| *name == service).map(|(_, kind)| *kind);
    kind.unwrap_or(service) == SHELL
}
