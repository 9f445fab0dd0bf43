//! `levada revoke`: a capability, or a session of this home's node, and all derived from it.

use crate::failure::Outcome;
use crate::{capability_text, output};
use clap::Args;
use levada_capability::SessionId;
use levada_node::client::Client;
use levada_node::control::{self, Request};
use levada_node::home::Home;

/// Revoke a capability and all that was derived from it; its running sessions end within a second
///
/// A holder may revoke his own capability, from wherever he is. A session is revoked at the node of
/// this home.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada revoke @cat.cap
  levada revoke 00112233445566778899aabbccddeeff")]
pub struct Arguments {
    /// The capability (its text, @file, or - for a line of standard input), or the id of a session
    #[arg(value_name = "CAPABILITY|SESSION")]
    what: String,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    if arguments.what.parse::<SessionId>().is_ok() {
        let session = arguments.what;
        let text = format!("session {session} is revoked");
        control::call(&home, &Request::RevokeSession { session }).await?;
        output::note(text);
        return Ok(0);
    }
    let capability = capability_text::read(&arguments.what)?;
    let client = Client::new(&home)?;
    client.revoke(&capability).await?;
    client.close();
    output::note("the capability is revoked, and all that was derived from it");
    Ok(0)
}
