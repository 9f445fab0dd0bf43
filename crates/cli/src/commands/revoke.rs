//! `levada revoke`: revokes a capability, or a session of this home's node, with all derived capabilities; or the
//! permission that an invitation gave an identity.

use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::{capability_text, output};
use clap::Args;
use levada_client::Client;
use levada_client::home::Home;
use levada_client::known::Known;
use levada_core::{Identity, check_name};
use levada_node::control::{self, Request};

/// Revoke a capability and all capabilities derived from it; running sessions end within a second
///
/// A holder may revoke its own capability, from any machine. The node of this home revokes the sessions and
/// capabilities that `levada sessions` and its log show. For an identity, it withdraws the permission of an
/// invitation: the identity can request no further sessions. Capabilities that it holds stay valid: revoke those
/// sessions too, or block it in config.toml. Ids and identities may be shortened as in these tables, if unambiguous.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada revoke @cat.cap
  levada revoke 00112233445566778899aabbccddeeff
  levada revoke bob")]
pub struct Arguments {
    /// The capability (its text, @file, or - for a line of standard input), the id of a session or of a
    /// capability, an identity, or its name here
    #[arg(value_name = "CAPABILITY|ID|IDENTITY")]
    what: String,
}

/// The kind of the argument, by its form.
enum Target {
    Capability,
    Id,
    Identity,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let (home, what) = (Home::open()?, arguments.what);
    match target(&home, &what)? {
        Target::Capability => revoke(&home, &what).await,
        Target::Id => revoke_id(&home, what).await,
        Target::Identity => disallow(&home, what).await,
    }
}

/// The kind of `text`. A pinned name takes precedence over a shortened id or identity.
fn target(home: &Home, text: &str) -> Result<Target, Failure> {
    let is_hex = text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    if text == "-" || text.starts_with('@') || text.starts_with("lvcap1") {
        return Ok(Target::Capability);
    }
    if text.parse::<Identity>().is_ok() || Known::open(&home.known_db())?.by_name(text)?.is_some() {
        return Ok(Target::Identity);
    }
    match text.len() {
        8..=64 if is_hex => Ok(Target::Id),
        10.. if text.starts_with("lv") && check_name(text).is_ok() => Ok(Target::Identity),
        _ => Err(Failure::new(
            USAGE,
            format!(
                "{text:?} is neither a capability, an identity, an id of `levada sessions`, nor a name of `levada peers ls`"
            ),
        )),
    }
}

async fn revoke(home: &Home, text: &str) -> Outcome {
    let capability = capability_text::read(text)?;
    let client = Client::new(home)?;
    client.revoke(&capability).await?;
    client.close();
    output::note("the capability and all capabilities derived from it are revoked");
    Ok(0)
}

async fn revoke_id(home: &Home, id: String) -> Outcome {
    let answer = control::call(home, &Request::RevokeId { id }).await?;
    match (answer["session"].as_str(), answer["capability"].as_str()) {
        (Some(session), _) => output::note(format_args!("session {session} is revoked")),
        (_, Some(link)) => {
            output::note(format_args!(
                "capability {link} and all capabilities derived from it are revoked"
            ));
        }
        _ => return Err(Failure::local("the node sent an unknown answer")),
    }
    Ok(0)
}

async fn disallow(home: &Home, identity: String) -> Outcome {
    let answer = control::call(home, &Request::Disallow { identity }).await?;
    if answer["was_allowed"] == false {
        output::note(
            "this identity was not permitted by an invitation; see `allow` in config.toml",
        );
        return Ok(NO);
    }
    let identity = answer["identity"].as_str().unwrap_or_default();
    output::note(format_args!("{identity} can request no further sessions here"));
    Ok(0)
}
