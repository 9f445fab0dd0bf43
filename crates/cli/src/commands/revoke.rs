//! `levada revoke`: revokes a capability, or a session of this home's node, with all derived
//! capabilities; or the permission that an invitation gave an identity.

use crate::abbreviation::expand;
use crate::directory::labelled;
use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::output::{self, Cell, Screen, Wide, plain};
use crate::secret_text;
use clap::Args;
use levada_client::Client;
use levada_client::control::{self, Request};
use levada_core::{Identity, MIN_ABBREVIATION, check_name};
use levada_home::Home;
use levada_home::known::Known;
use serde_json::Value;

/// Revoke a capability or session, with all derived from it; or an invited identity's permission
///
/// Sessions that run by what is revoked end within a second. A holder may revoke its own
/// capability, from any machine. The node of this home revokes the
/// sessions and capabilities that `levada sessions` and its log show. For an identity, it withdraws
/// the permission of an invitation: the identity can request no further sessions. Its running
/// sessions go on, and capabilities that it holds or has passed on stay valid: they are listed,
/// with the ids that end them. `levada access remove NAME --all` ends all of them. Ids and identities may be
/// shortened as in these tables, if unambiguous.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada revoke @cat.cap
  levada revoke 00112233445566778899aabbccddeeff
  levada revoke bob")]
pub struct Arguments {
    /// The capability (its text, @file, or - for a line of standard input), the id of a session or
    /// of a capability, an identity, or its name here
    #[arg(value_name = "CAPABILITY|ID|IDENTITY")]
    what: String,

    #[command(flatten)]
    wide: Wide,
}

/// The maximum number of sessions that are printed.
const MAX_ROWS: usize = 20;
/// The digits of an id that are printed: all of a session's, and enough of a capability's.
const ID_DIGITS: usize = 32;

/// The kind of the argument, by its form.
enum Target {
    Capability,
    Id,
    Identity,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    let what = expand(&arguments.what).await?;
    match target(&home, &what)? {
        Target::Capability => revoke(&home, &what).await,
        Target::Id => revoke_id(&home, what).await,
        Target::Identity => disallow(&home, what, arguments.wide).await,
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
    let capability = secret_text::read(text)?;
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

async fn disallow(home: &Home, identity: String, wide: Wide) -> Outcome {
    let answer = control::call(home, &Request::Disallow { identity }).await?;
    let identity = plain(answer["identity"].as_str().unwrap_or_default());
    let named = identity.parse().map_or_else(|_| identity.clone(), |identity| labelled(&identity));
    let was_allowed = answer["was_allowed"] != false;
    match (was_allowed, answer["allowed_by_config"] == true) {
        (true, false) => {
            output::note(format_args!("{named} can request no further sessions here"));
        }
        (true, true) => output::note(format_args!(
            "the permission by an invitation is withdrawn; `allow` in config.toml, or `--allow`, \
             still permits {named} to request sessions"
        )),
        (false, _) => output::note(
            "this identity was not permitted by an invitation; see `allow` in config.toml",
        ),
    }
    note_remaining(&identity, &answer["remaining"], wide);
    Ok(if was_allowed { 0 } else { NO })
}

/// Names what the identity can still use, and how to end it.
pub fn note_remaining(identity: &str, remaining: &Value, wide: Wide) {
    let all = remaining.as_array().map(Vec::as_slice).unwrap_or_default();
    let block = format!("`block = [\"{identity}\"]` in config.toml and a reload (SIGHUP)");
    if all.is_empty() {
        output::note(format_args!(
            "none of its sessions runs or can be started; {block} also refuses capabilities that \
             were passed on to it and that it has not used yet"
        ));
        return;
    }
    output::note("These sessions go on or can be started, by it or with what it has passed on:");
    let heading = ["id", "service", "running", "can start", "requester", "holder"];
    let rows: Vec<Vec<Cell>> = all.iter().take(MAX_ROWS).map(row).collect();
    output::note_lines(&output::lines(&heading, &rows, wide, Screen::error()));
    if let Some(more @ 1..) = all.len().checked_sub(MAX_ROWS) {
        output::note(format_args!("… and {more} more; `levada sessions` lists them"));
    }
    output::note(format_args!(
        "`levada revoke ID` ends one; `levada access remove {identity} --all` ends all of them; \
         {block} also refuse capabilities that it has not used yet"
    ));
}

fn row(remaining: &Value) -> Vec<Cell> {
    let text = |key: &str| remaining[key].as_str().unwrap_or_default();
    let person = |key: &str| {
        let name = remaining[format!("{key}_name")].as_str();
        Cell::named(name, text(key), Some(MIN_ABBREVIATION))
    };
    let can_start = if remaining["can_start"] == true { "yes" } else { "no" };
    let running = Cell::whole(&remaining["running"]);
    let id = Cell::id(text("id"), Some(ID_DIGITS));
    let service = plain(text("service")).into();
    vec![id, service, running, can_start.into(), person("requester"), person("holder")]
}
