//! `levada access`: shows and changes who may use the services of this home's node.

mod explain;
mod lines;
mod test;

use std::time::Duration;

use clap::{Args, Subcommand};
use levada_client::control::{self, Request};
use levada_config::GROUP_PREFIX;
use levada_core::{MIN_ABBREVIATION, UnixTime, parse_duration};
use levada_home::Home;
use serde_json::Value;

use crate::failure::{NO, Outcome};
use crate::output::{self, Cell, Wide, plain};

/// Show and change who may use the services of this node
///
/// Without a verb it lists each identity with its rights: the service, the origin of the right,
/// its end, the uses that are left, the last use, and the sessions that run now. The origin is the
/// configuration or the command line of the node, a group, an invitation, the owner (`access
/// allow`), a capability that the identity requested or received, a ticket, or the role of a
/// middlebox. Open invitations and tickets follow.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  levada access
  levada access bob --json
  levada access allow bob --service web --expires 7d
  levada access remove bob --all
  levada access explain bob exec -- df -h
  levada access test rights.txt")]
pub struct Arguments {
    #[command(subcommand)]
    change: Option<Change>,

    /// Only this identity, its name here, or group:NAME
    #[arg(value_name = "IDENTITY")]
    identity: Option<String>,

    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // One value in a call of the command.
enum Change {
    Allow(Allow),
    Remove(Remove),
    Explain(explain::Arguments),
    Test(test::Arguments),
}

/// Give a known identity, or a group, the right to request services
///
/// Its sessions can be started until the right ends; what runs then goes on. A further call for the
/// same service replaces the right. For an identity that is not known here, use `levada invite`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada access allow bob --service web --service clock
  levada access allow bob --service exec --expires 7d --uses 10")]
struct Allow {
    /// The identity, its name here, or group:NAME
    #[arg(value_name = "IDENTITY")]
    identity: String,

    /// The service; repeatable. Every service if not given
    #[arg(long, value_name = "S")]
    service: Vec<String>,

    /// The time until the right ends, such as 90s, 10m, 1h or 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires: Option<Duration>,

    /// The number of starts that it permits
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Remove rights of an identity
///
/// Sessions that run go on, and capabilities stay valid: they are listed. With --all they end too:
/// every right is removed, what the identity requested, holds and has passed on is revoked, and
/// what it runs ends. Rights in config.toml stay, and are named with their lines.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada access remove bob --service exec
  levada access remove bob --all")]
struct Remove {
    /// The identity, its name here, or group:NAME
    #[arg(value_name = "IDENTITY")]
    identity: String,

    /// The service; every service if not given
    #[arg(long, value_name = "S")]
    service: Option<String>,

    /// End and revoke everything that this identity has here
    #[arg(long, conflicts_with = "service")]
    all: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    match arguments.change {
        None => list(&home, arguments).await,
        Some(Change::Allow(change)) => allow(&home, change).await,
        Some(Change::Remove(change)) => remove(&home, change).await,
        Some(Change::Explain(arguments)) => explain::run(&home, arguments).await,
        Some(Change::Test(arguments)) => test::run(&home, arguments),
    }
}

async fn list(home: &Home, arguments: Arguments) -> Outcome {
    let Arguments { identity, wide, json, .. } = arguments;
    let answer = control::call(home, &Request::Access { identity }).await?;
    if json {
        output::json(answer)?;
        return Ok(0);
    }
    let rights = rows(&answer, "access", right);
    if rights.is_empty() {
        output::note("no other identity may use a service of this node; `levada invite` lets one");
    } else {
        let heading = ["identity", "service", "from", "until", "uses", "last used", "running"];
        output::columns(&heading, &rights, wide)?;
    }
    let others = [
        (rows(&answer, "rules_for_everyone", for_everyone), FOR_EVERYONE),
        (rows(&answer, "blocked", blocked), BLOCKED),
        (rows(&answer, "invitations", invitation), INVITATIONS),
        (rows(&answer, "tickets", ticket), TICKETS),
    ];
    for (rows, heading) in others.iter().filter(|(rows, _)| !rows.is_empty()) {
        output::data("")?;
        output::columns(heading, rows, wide)?;
    }
    Ok(0)
}

/// The heading over the rows of [`invitation`].
pub const INVITATIONS: &[&str] = &["invitation", "service", "name", "until"];
const FOR_EVERYONE: &[&str] = &["rule for everyone", "service", "effect"];
const BLOCKED: &[&str] = &["identity", "state"];
const TICKETS: &[&str] = &["ticket", "content", "for", "exchanged", "until"];

/// An open invitation as a row of a table.
pub fn invitation(invitation: &Value) -> Vec<Cell> {
    vec![
        id(&invitation["id"]),
        service(invitation),
        text(&invitation["name"]).into(),
        time(&invitation["expires"]),
    ]
}

/// The rows of a list in an answer.
pub fn rows(answer: &Value, key: &str, row: impl Fn(&Value) -> Vec<Cell>) -> Vec<Vec<Cell>> {
    answer[key].as_array().into_iter().flatten().map(row).collect()
}

fn right(right: &Value) -> Vec<Cell> {
    let from = match (text(&right["from"]).as_str(), right["detail"].as_str()) {
        ("configuration", Some(place)) => plain(place),
        (group, Some(place)) if group.starts_with(GROUP_PREFIX) => {
            format!("{} ({})", plain(group), plain(place))
        }
        ("rule" | "rule that asks", Some(place)) => {
            format!("{} ({})", plain(place), text(&right["from"]))
        }
        ("middlebox", Some(allow)) => format!("middlebox ({})", plain(allow)),
        (from, _) => from.to_owned(),
    };
    let from = from + &denials(right);
    let running = right["running"].as_u64().unwrap_or_default();
    vec![
        person(right, "identity", "name"),
        service(right),
        from.into(),
        time(&right["until"]),
        right["uses"].as_u64().map_or_else(|| "-".into(), Cell::whole),
        time(&right["last_used"]),
        if running > 0 { Cell::running(running.to_string()) } else { Cell::whole(running) },
    ]
}

/// The rules that deny a right or some of its services, as the end of its origin.
fn denials(right: &Value) -> String {
    let all = right["denied_by"].as_str().map(|place| format!(", denied by {}", plain(place)));
    let some = right["denied_services"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(service, place)| format!(", {} denied by {}", plain(service), text(place)));
    all.into_iter().chain(some).collect()
}

fn for_everyone(rule: &Value) -> Vec<Cell> {
    vec![text(&rule["place"]).into(), text(&rule["service"]).into(), text(&rule["effect"]).into()]
}

fn blocked(blocked: &Value) -> Vec<Cell> {
    vec![person(blocked, "identity", "name"), Cell::state("blocked")]
}

fn ticket(ticket: &Value) -> Vec<Cell> {
    let bound = match ticket["bound"].is_null() {
        true => "each bearer".into(),
        false => person(ticket, "bound", "bound_name"),
    };
    let exchanged = format!("{} of {}", ticket["exchanged"], ticket["peers"]);
    vec![
        id(&ticket["id"]),
        text(&ticket["content"]).into(),
        bound,
        Cell::whole(exchanged),
        time(&ticket["expires"]),
    ]
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| "-".to_owned(), plain)
}

fn id(value: &Value) -> Cell {
    Cell::id(value.as_str().unwrap_or_default(), None)
}

fn service(row: &Value) -> Cell {
    row["service"].as_str().map_or_else(|| "every service".to_owned(), plain).into()
}

fn person(row: &Value, identity: &str, name: &str) -> Cell {
    let key = row[identity].as_str().unwrap_or_default();
    Cell::named(row[name].as_str(), key, Some(MIN_ABBREVIATION))
}

fn time(value: &Value) -> Cell {
    value.as_u64().map_or_else(|| "-".into(), Cell::time)
}

async fn allow(home: &Home, change: Allow) -> Outcome {
    let named = change.identity.clone();
    let request = Request::Allow {
        identity: change.identity,
        services: change.service,
        expires_secs: change.expires.map(|expires| expires.as_secs()),
        uses: change.uses,
    };
    let answer = control::call(home, &request).await?;
    if change.json {
        output::json(answer)?;
        return Ok(0);
    }
    let services: Vec<String> =
        answer["services"].as_array().into_iter().flatten().map(text).collect();
    let services = if services.is_empty() { "every service".into() } else { services.join(", ") };
    let until = match answer["until"].as_u64().map(UnixTime) {
        Some(UnixTime::NEVER) | None => String::new(),
        Some(time) => format!(" until {}", output::time(time)),
    };
    output::note(format_args!("{} may request {services}{until}", plain(&named)));
    Ok(0)
}

async fn remove(home: &Home, change: Remove) -> Outcome {
    let named = plain(&change.identity);
    let Remove { identity, service, all, json } = change;
    let answer = control::call(home, &Request::RemoveAccess { identity, service, all }).await?;
    if json {
        output::json(answer.clone())?;
    } else {
        report_removed(&named, &answer, all);
    }
    let is_changed = ["rights", "sessions", "capabilities", "tickets", "ended"]
        .iter()
        .any(|key| answer[*key].as_u64().is_some_and(|count| count > 0));
    Ok(if is_changed { 0 } else { NO })
}

fn report_removed(named: &str, answer: &Value, all: bool) {
    let count = |key: &str| answer[key].as_u64().unwrap_or_default();
    output::note(format_args!("{named}: {} removed", counted(count("rights"), "right")));
    if all {
        output::note(format_args!(
            "revoked: {}, {}, {}; ended: {}",
            counted(count("sessions"), "session"),
            counted(count("capabilities"), "capability"),
            counted(count("tickets"), "ticket"),
            counted(count("ended"), "running session"),
        ));
    }
    if let Some(service) = answer["still_permitted"].as_str() {
        output::note(format_args!(
            "{named} may still request {}: a right to every service, or the configuration, \
             permits it",
            plain(service)
        ));
    }
    for place in answer["configured"].as_array().into_iter().flatten() {
        output::note(format_args!("{} still gives a right: change it there", text(place)));
    }
    let identity = text(&answer["identity"]);
    if all {
        output::note(format_args!(
            "a capability that others passed to {named} and that was never used here is not known \
             to this node: `block = [\"{identity}\"]` in config.toml refuses it"
        ));
    } else {
        super::revoke::note_remaining(&identity, &answer["remaining"], Wide::default());
    }
}

/// A number and a noun.
fn counted(count: u64, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {noun}s"),
    }
}
