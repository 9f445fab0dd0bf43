//! `levada terminate`: ends a session permanently.

use crate::failure::Outcome;
use crate::{output, secret_text};
use clap::Args;
use levada_client::Client;
use levada_home::Home;

/// End the session of a capability permanently, whether it was started or not
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada terminate @cat.cap")]
pub struct Arguments {
    /// The capability: its text, @file, or - for a line of standard input
    #[arg(value_name = "CAPABILITY")]
    capability: String,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let capability = secret_text::read(&arguments.capability)?;
    let client = Client::new(&Home::open()?)?;
    client.terminate(&capability).await?;
    client.close();
    output::note(format_args!("session {} is terminated", capability.session()));
    Ok(0)
}
