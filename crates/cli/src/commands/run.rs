//! `levada run`: requests a session and attaches to it.

use crate::attach::{self, Escape};
use crate::failure::Outcome;
use crate::names::Names;
use crate::parameters::Parameters;
use crate::service_target::ServiceTarget;
use clap::Args;
use levada_client::{Client, RequestSpec};
use levada_core::Framing;
use levada_home::Home;

/// Use a service: request a session and connect to it
///
/// Standard input, output and error are those of the program, and so is the exit code.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada run alpha/clock
  levada run alpha/exec uname -a
  levada run alpha/exec --pty top
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

    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    parameters: Parameters,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let spec = RequestSpec {
        service: arguments.at.service,
        params: arguments.parameters.pairs()?,
        framing: arguments.framing,
        uses: 1,
        ..RequestSpec::default()
    };
    let client = Client::new(&Home::open()?)?;
    let target = arguments.names.resolve(&client, &arguments.at.node).await?;
    let pty = spec.params.value("pty").is_some();
    let running = client.request_and_start(&target, spec).await?;
    attach::attach(&client, running, pty, arguments.escape).await
}
