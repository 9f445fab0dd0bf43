//! `levada connect`: starts the session of a capability and attaches to it.

use crate::attach::Escape;
use crate::failure::Outcome;
use crate::{attach, secret_text};
use clap::Args;
use levada_client::Client;
use levada_home::Home;

/// Start the session of a capability and attach to it
///
/// The exit code is that of the program.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada connect @cat.cap < file
  levada request alpha/exec -- uname | levada connect -")]
pub struct Arguments {
    /// The capability: its text, @file, or - for a line of standard input
    #[arg(value_name = "CAPABILITY")]
    capability: String,

    /// The character that begins an escape sequence on a terminal (~. ends the session, ~? shows
    /// all), or none
    #[arg(long, value_name = "CHARACTER", default_value_t)]
    escape: Escape,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let capability = secret_text::read(&arguments.capability)?;
    let client = Client::new(&Home::open()?)?;
    attach::start(&client, &capability, arguments.escape).await
}
