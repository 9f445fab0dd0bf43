//! `levada revoke`: a capability, or a session of this home's node, and all derived from it; or what
//! an invitation gave an identity.

use crate::failure::{NO, Outcome};
use crate::{capability_text, output};
use clap::Args;
use levada_capability::SessionId;
use levada_core::Identity;
use levada_node::client::Client;
use levada_node::control::{self, Request};
use levada_node::home::Home;

/// Revoke a capability and all that was derived from it; its running sessions end within a second
///
/// A holder may revoke his own capability, from wherever he is. A session is revoked at the node of
/// this home; so is an identity, which then may request nothing more (what it holds stays valid: revoke
/// those sessions too, or block it in config.toml).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada revoke @cat.cap
  levada revoke 00112233445566778899aabbccddeeff
  levada revoke lv…")]
pub struct Arguments {
    /// The capability (its text, @file, or - for a line of standard input), the id of a
    /// session, or an identity
    #[arg(value_name = "CAPABILITY|SESSION|IDENTITY")]
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
    if arguments.what.parse::<Identity>().is_ok() {
        return disallow(&home, arguments.what).await;
    }
    let capability = capability_text::read(&arguments.what)?;
    let client = Client::new(&home)?;
    client.revoke(&capability).await?;
    client.close();
    output::note("the capability is revoked, and all that was derived from it");
    Ok(0)
}

async fn disallow(home: &Home, identity: String) -> Outcome {
    let text = format!("{identity} may request nothing here any more");
    let answer = control::call(home, &Request::Disallow { identity }).await?;
    if answer["was_allowed"] == false {
        output::note("no invitation had let this identity in; see `allow` in config.toml");
        return Ok(NO);
    }
    output::note(text);
    Ok(0)
}
