//! `levada invite`: creates an invitation to the node of this home.

use super::access;
use crate::failure::{Failure, Outcome};
use crate::identity::nickname;
use crate::output::{self, Wide};
use clap::{Args, Subcommand};
use levada_client::control::{self, Request};
use levada_core::{format_duration, parse_duration};
use levada_home::Home;
use levada_home::address::{advertised, reach};
use serde_json::{Value, json};
use std::time::Duration;

/// The maximum number of addresses that are printed.
const MAX_SHOWN: usize = 3;

/// Invite another identity: prints the whole command that the invited side types
///
/// An invitation is valid for one use. It contains the node's address, its identity and a one-time
/// secret.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada invite
  levada invite --service clock --expires 1h
  levada invite --name bob
  levada invite --address box.example:5382
  levada invite ls
  levada invite cancel 0011223344556677")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    existing: Option<Existing>,

    /// The service that it opens; every service of the node if not given
    #[arg(long, value_name = "S")]
    service: Option<String>,

    /// The name that the guest gets here once it has joined
    #[arg(long, value_name = "NAME", value_parser = nickname)]
    name: Option<String>,

    /// For how long the line can be used, such as 90s, 10m, 1h or 7d. The right that it gives has no
    /// end; `levada access allow` gives one with an end
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    expires: Duration,

    /// Where the node is reached from outside, before its own addresses: a DNS name or an address,
    /// and the port
    #[arg(long, value_name = "HOST:PORT", value_parser = advertised)]
    address: Vec<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Existing {
    Ls(List),
    Cancel(Cancel),
}

/// List the invitations that can be redeemed
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada invite ls --json")]
struct List {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Make an invitation void
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada invite cancel 0011223344556677")]
struct Cancel {
    /// Its id, which `levada invite ls` shows; it may be shortened
    #[arg(value_name = "ID")]
    id: String,
}

async fn list(json: bool) -> Outcome {
    let answer = control::call(&Home::open()?, &Request::Invitations).await?;
    if json {
        output::json(answer)?;
        return Ok(0);
    }
    let rows = access::rows(&answer, "invitations", access::invitation);
    if rows.is_empty() {
        output::note("no invitation is open");
        return Ok(0);
    }
    output::columns(access::INVITATIONS, &rows, Wide::default())?;
    Ok(0)
}

async fn cancel(id: String) -> Outcome {
    let answer = control::call(&Home::open()?, &Request::CancelInvitation { id }).await?;
    let id = output::plain(answer["id"].as_str().unwrap_or_default());
    output::note(format_args!("the invitation {id} is void"));
    Ok(0)
}

pub async fn run(arguments: Arguments) -> Outcome {
    match arguments.existing {
        Some(Existing::Ls(arguments)) => return list(arguments.json).await,
        Some(Existing::Cancel(arguments)) => return cancel(arguments.id).await,
        None => {}
    }
    let Arguments { service, name, expires, address, json, .. } = arguments;
    let named = name.clone();
    let request =
        Request::Invite { service, name, expires_secs: expires.as_secs(), addresses: address };
    let answer = control::call(&Home::open()?, &request).await?;
    let code = answer["code"]
        .as_str()
        .ok_or_else(|| Failure::local("the node answered without a code"))?;
    if let Some(note) = pinned_note(&answer, named.as_deref()) {
        output::note(note);
    }
    if json {
        let expires = &answer["expires"];
        let addresses = &answer["addresses"];
        let command = format!("levada join {code}");
        output::json(json!({
            "code": code,
            "command": command,
            "expires": expires,
            "addresses": addresses,
        }))?;
        return Ok(0);
    }
    let time = format_duration(expires);
    let at = places(&answer);
    output::note(format_args!("Valid for one use within {time}{at}. The invited side types:"));
    output::data(format_args!("levada join {code}"))?;
    Ok(0)
}

/// The addresses of the invitation with the widest reach, and the limit of that reach.
fn places(answer: &Value) -> String {
    let addresses = answer["addresses"].as_array().into_iter().flatten();
    let addresses: Vec<&str> = addresses.filter_map(Value::as_str).collect();
    let Some(widest) = addresses.iter().map(|text| reach(text)).min() else { return String::new() };
    let widest_only: Vec<&str> =
        addresses.into_iter().filter(|text| reach(text) == widest).collect();
    let mut text = format!(", at {}", widest_only[..widest_only.len().min(MAX_SHOWN)].join(", "));
    if let Some(more @ 1..) = widest_only.len().checked_sub(MAX_SHOWN) {
        text += &format!(" and {more} more");
    }
    if let Some(limit) = widest.limit() {
        text += &format!(" ({limit})");
    }
    text
}

/// The limits of an invitation for a name that is pinned already: it is not bound to that identity.
fn pinned_note(answer: &Value, name: Option<&str>) -> Option<String> {
    let identity = answer["pinned"].as_str()?;
    let name = name?;
    Some(format!(
        "note: {name} is {identity} here already, and stays so: any other identity that uses this \
         invitation gets its rights, but not this name; for another person, give another --name"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_with_the_widest_reach_are_named() {
        let places = |addresses: &[&str]| places(&json!({ "addresses": addresses }));
        let private = ["10.0.0.1:7", "10.0.0.2:7", "127.0.0.1:7"];
        assert_eq!(places(&private), ", at 10.0.0.1:7, 10.0.0.2:7 (private network)");
        assert_eq!(places(&["box.example:7", "10.0.0.1:7"]), ", at box.example:7");
        assert_eq!(places(&["127.0.0.1:7"]), ", at 127.0.0.1:7 (this machine)");
        let many = ["a:7", "b:7", "c:7", "d:7", "e:7"];
        assert_eq!(places(&many), ", at a:7, b:7, c:7 and 2 more");
        assert_eq!(places(&[]), "");
    }
}
