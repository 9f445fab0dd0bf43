//! `levada group`: shows and changes the groups of this home's node, and exchanges them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use levada_client::control::{self, GroupRequest, Request};
use levada_core::{UnixTime, parse_duration};
use levada_home::Home;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::output::{self, Cell, Wide, plain};

/// Show and change the groups of this node
///
/// A group is a name for a set of identities. It stands as `group:NAME` where an identity may
/// stand: in `allow` and `block` of config.toml, in `levada access allow`, and in other groups.
/// These verbs change the groups that the node keeps. Groups of config.toml are changed there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada group add family anna bob
  levada access allow group:family --service photos
  levada group remove family bob
  levada group ls")]
pub struct Arguments {
    #[command(subcommand)]
    verb: GroupVerb,
}

#[derive(Debug, Subcommand)]
enum GroupVerb {
    Add(Change),
    Remove(Remove),
    Ls(List),
    Export(Export),
    Import(Import),
}

/// Add members to a group, which is created if it is missing
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada group add family anna
  levada group add everyone group:family lv…")]
struct Change {
    /// The name of the group
    #[arg(value_name = "GROUP")]
    name: String,

    /// Identities, their names here, and groups as group:NAME
    #[arg(value_name = "IDENTITY")]
    members: Vec<String>,
}

/// Remove members from a group, or the whole group with its rights
///
/// The rights by the group end at once: its former members can request and start no further
/// sessions by it. Their running sessions go on, and are listed; `levada access remove NAME --all`
/// ends them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada group remove family bob
  levada group remove family")]
struct Remove {
    /// The name of the group
    #[arg(value_name = "GROUP")]
    name: String,

    /// Identities, their names here, and groups as group:NAME; all, with the group, if not given
    #[arg(value_name = "IDENTITY")]
    members: Vec<String>,
}

/// List groups with their members
///
/// The column `from` is the place in config.toml, `node` for a group that `levada group` changes,
/// or `other node` for one of the node that `from` in `[groups]` names.
#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Sign groups for other nodes
///
/// The file lists the identities of the groups, with names as comments, and is valid until it
/// expires. Nodes whose `[groups] from` names this identity take it over: from this node, if
/// `readers` in its `[groups]` lists them, or by `levada group import`. The node signs the groups
/// again for its readers when they change, and after half of the time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada group export family staff --output family.groups
  levada group export staff --set office --expires 1d")]
struct Export {
    /// The groups
    #[arg(value_name = "GROUP", required = true)]
    names: Vec<String>,

    /// The name of the set; nodes choose it by `set` in `[groups]`
    #[arg(long, value_name = "NAME", default_value = "default")]
    set: String,

    /// The time until it gives no rights, such as 12h or 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "7d")]
    expires: Duration,

    /// The file; standard output if not given
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Take over groups of another node from a file
///
/// The file must be signed by the identity in `[groups] from` of config.toml, and be newer than the
/// one before.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada group import family.groups")]
struct Import {
    /// The file of `levada group export`
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    match arguments.verb {
        GroupVerb::Add(change) => add(&home, change).await,
        GroupVerb::Remove(change) => remove(&home, change).await,
        GroupVerb::Ls(arguments) => list(&home, arguments).await,
        GroupVerb::Export(arguments) => export(&home, arguments).await,
        GroupVerb::Import(arguments) => import(&home, arguments).await,
    }
}

async fn call(home: &Home, request: GroupRequest) -> Result<Value, Failure> {
    Ok(control::call(home, &Request::Group(request)).await?)
}

async fn add(home: &Home, change: Change) -> Outcome {
    let Change { name, members } = change;
    let shown = plain(&name);
    let answer = call(home, GroupRequest::Add { name, members }).await?;
    output::note(format_args!("group:{shown}: {} members named", answer["members"]));
    Ok(0)
}

async fn remove(home: &Home, change: Remove) -> Outcome {
    let Remove { name, members } = change;
    let shown = plain(&name);
    let answer = call(home, GroupRequest::Remove { name, members }).await?;
    output::note(format_args!("group:{shown}: removed"));
    for left in answer["left"].as_array().into_iter().flatten() {
        let identity = plain(left["identity"].as_str().unwrap_or_default());
        super::revoke::note_remaining(&identity, &left["remaining"], Wide::default());
    }
    Ok(0)
}

async fn list(home: &Home, arguments: List) -> Outcome {
    let answer = call(home, GroupRequest::List).await?;
    if arguments.json {
        output::json(answer)?;
        return Ok(0);
    }
    let rows: Vec<_> = answer["groups"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        output::note("this node has no groups; `levada group add NAME MEMBER` makes one");
        return Ok(0);
    }
    output::columns(&["group", "from", "identities", "members"], &rows, arguments.wide)?;
    Ok(0)
}

fn row(group: &Value) -> Vec<Cell> {
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    let from = match group["hidden"].as_bool() {
        Some(true) => "other node (not used: this node has a group of this name)".to_owned(),
        _ => text(&group["from"]),
    };
    let member = |member: &Value| match (&member["group"], &member["name"]) {
        (Value::String(group), _) => plain(group),
        (_, Value::String(name)) => plain(name),
        _ => text(&member["identity"]),
    };
    let members: Vec<_> = group["members"].as_array().into_iter().flatten().map(member).collect();
    let members = if members.is_empty() { "-".to_owned() } else { members.join(", ") };
    let identities = group["identities"].as_u64().unwrap_or_default();
    vec![text(&group["group"]).into(), from.into(), Cell::whole(identities), members.into()]
}

async fn export(home: &Home, arguments: Export) -> Outcome {
    let Export { names, set, expires, output: file } = arguments;
    let expires_secs = expires.as_secs();
    let answer = call(home, GroupRequest::Export { names, set, expires_secs }).await?;
    let text = answer["text"].as_str().unwrap_or_default();
    match &file {
        Some(file) => std::fs::write(file, text)
            .map_err(|error| Failure::local(format!("{}: {error}", file.display())))?,
        None => text.lines().try_for_each(output::data)?,
    }
    let until = UnixTime(answer["expires"].as_u64().unwrap_or_default());
    output::note(format_args!(
        "set `{}`, version {}, valid until {}",
        plain(answer["set"].as_str().unwrap_or_default()),
        answer["version"],
        output::time(until)
    ));
    Ok(0)
}

async fn import(home: &Home, arguments: Import) -> Outcome {
    let file = std::path::absolute(&arguments.file).map_err(Failure::local)?;
    let answer = call(home, GroupRequest::Import { file }).await?;
    match answer["expires"].as_u64() {
        Some(until) => output::note(format_args!(
            "took over version {}, valid until {}",
            answer["version"],
            output::time(UnixTime(until))
        )),
        None => output::note("this version is in effect already"),
    }
    Ok(0)
}
