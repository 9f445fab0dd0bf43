//! `levada catalogue ls`, `search`, `watch` and `log`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use levada_catalogue::model::{Key, Kind, Published};
use levada_core::wire::catalogue::{Changed, Detail, Logged};
use levada_core::{Identity, UnixTime};
use levada_services::catalogue::Item;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::connection::{At, CatalogueConnection};
use super::object::{HEADING, describe, row};
use crate::failure::{Failure, Outcome, PROTOCOL, UNREACHABLE};
use crate::output::{self, plain};

/// The pause before a catalogue that was lost is asked again, which doubles each time…
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// …up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// `TYPE` or `TYPE/NAME`.
#[derive(Clone, Debug)]
enum What {
    Kind(Kind),
    Object(Key),
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains('/') {
            true => text.parse::<Key>().map(Self::Object).map_err(|error| error.to_string()),
            false => text.parse::<Kind>().map(Self::Kind).map_err(|error| error.to_string()),
        }
    }
}

/// Show which objects there are, or the versions of one
///
/// Of each object the newest version is shown that was not taken back.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue ls
  levada catalogue ls hyperty --prefix acme.
  levada catalogue ls hyperty/Connector --json")]
pub struct Ls {
    /// A type (dataschema, hyperty, idp-proxy, protocolstub, runtime, service), or one object
    #[arg(value_name = "TYPE[/NAME]")]
    what: Option<What>,

    /// What the names begin with
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,

    /// At most so many; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: u32,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn ls(arguments: Ls) -> Outcome {
    let mut connection = arguments.at.open().await?;
    let listed = match &arguments.what {
        Some(What::Object(key)) => versions(&mut connection, key).await,
        what => {
            let kind = what.as_ref().map(|what| match what {
                What::Kind(kind) => *kind,
                What::Object(key) => key.kind,
            });
            objects(&mut connection, kind, &arguments).await
        }
    };
    connection.close().await;
    print(listed?, arguments.limit, arguments.json)
}

async fn versions(connection: &mut CatalogueConnection, key: &Key) -> Result<Vec<Shown>, Failure> {
    let mut found = Vec::new();
    let each = |one: Published| {
        found.push(Shown { key: one.key.clone(), version: Some(one) });
        Ok::<_, Failure>(())
    };
    connection.caller.versions(key, each).await?;
    Ok(found)
}

async fn objects(
    connection: &mut CatalogueConnection,
    kind: Option<Kind>,
    arguments: &Ls,
) -> Result<Vec<Shown>, Failure> {
    let mut found = Vec::new();
    let each = |item: Item| {
        found.push(Shown { key: item.key, version: item.newest });
        Ok::<_, Failure>(())
    };
    let limit = one_more(arguments.limit);
    connection.caller.list(kind, &arguments.prefix, limit, Detail::Newest, each).await?;
    Ok(found)
}

/// An object, with the version that is shown of it: `None` if all were taken back.
struct Shown {
    key: Key,
    version: Option<Published>,
}

/// One more than is shown, to see whether there are more.
fn one_more(limit: u32) -> u64 {
    if limit == 0 { 0 } else { u64::from(limit) + 1 }
}

fn print(mut found: Vec<Shown>, limit: u32, json: bool) -> Outcome {
    let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let more = found.len() > most;
    found.truncate(most);
    if json {
        let objects: Vec<Value> = found.iter().map(Shown::describe).collect();
        output::json(json!({ "objects": objects, "more": more }))?;
        return Ok(0);
    }
    if found.is_empty() {
        output::note("note: there is nothing of this");
        return Ok(0);
    }
    output::columns(HEADING, &found.iter().map(Shown::row).collect::<Vec<_>>())?;
    if more {
        output::note("note: there are more; `--limit 0` shows all");
    }
    Ok(0)
}

impl Shown {
    fn describe(&self) -> Value {
        match &self.version {
            Some(version) => describe(version),
            None => json!({ "object": self.key.to_string(), "version": null }),
        }
    }

    fn row(&self) -> Vec<String> {
        match &self.version {
            Some(version) => row(version),
            None => {
                let object = plain(&self.key.to_string());
                [object.as_str(), "-", "yanked", "-", "-", "-"].map(str::to_owned).into()
            }
        }
    }
}

/// Find objects by words of their names and descriptors
///
/// An object is found if it has every word; the last one may be the beginning of one. Those that have them in their
/// names come first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue search video codec
  levada catalogue search connect --type hyperty --json")]
pub struct Search {
    /// What to look for
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,

    /// Only objects of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,

    /// At most so many; 0 for all
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn search(arguments: Search) -> Outcome {
    let mut connection = arguments.at.open().await?;
    let mut found = Vec::new();
    let each = |item: Item| {
        found.push(Shown { key: item.key, version: item.newest });
        Ok::<_, Failure>(())
    };
    let (query, limit) = (arguments.words.join(" "), one_more(arguments.limit));
    let searched = connection.caller.search(&query, arguments.kind, limit, each).await;
    connection.close().await;
    searched?;
    print(found, arguments.limit, arguments.json)
}

/// Show changes as they happen
///
/// Each line has the revision, what happened, and to which version. When the connection to another node is lost, it is made
/// again, and no change is left out. After an interruption, --after with the last revision goes on behind it; exit code 1 says that changes of so long ago are not kept.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue watch
  levada catalogue watch --type service --after 0 --at hub/catalogue
  levada catalogue watch --after 120 --once --json")]
pub struct Watch {
    /// Begin behind this revision, 0 for the very first change; with what happens from now on if not given
    #[arg(long, value_name = "REVISION")]
    after: Option<u64>,

    /// Only objects of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,

    /// What the names begin with
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,

    /// End with the last change that there is
    #[arg(long)]
    once: bool,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn watch(arguments: Watch) -> Outcome {
    let mut connection = arguments.at.open().await?;
    let mut after = arguments.after;
    loop {
        let watched = follow(&mut connection, &arguments, &mut after).await;
        connection.close().await;
        let Err(failure) = watched else { return Ok(0) };
        // The own catalogue's node may start again: then its store must be free.
        if arguments.once || !arguments.at.is_elsewhere() {
            return Err(failure);
        }
        connection = again(&arguments.at, failure).await?;
        output::note("levada: connected again");
    }
}

/// Prints changes behind `after`, which is kept up to date.
async fn follow(
    connection: &mut CatalogueConnection,
    watch: &Watch,
    after: &mut Option<u64>,
) -> Result<(), Failure> {
    let meant = (watch.kind, watch.prefix.as_str());
    if after.is_none() {
        // Where it begins: if the connection is lost before the first change, none is missed.
        let nothing = |_| Ok::<_, Failure>(());
        *after = Some(connection.caller.watch(None, meant, false, nothing).await?);
    }
    let begin = *after;
    let each = |change: Changed| {
        *after = Some(change.revision);
        show(&change, watch.json)
    };
    connection.caller.watch(begin, meant, !watch.once, each).await.map(drop)
}

fn show(change: &Changed, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(json!({
            "revision": change.revision,
            "event": change.event,
            "object": change.key,
            "version": change.version,
        }));
    }
    let [event, key, version] =
        [&change.event, &change.key, &change.version].map(|text| plain(text));
    output::data(format_args!("{} {event} {key} {version}", change.revision))
}

/// Tries to reach the catalogue again, after pauses that double, until it is refused for good.
async fn again(at: &At, mut failure: Failure) -> Result<CatalogueConnection, Failure> {
    let mut pause = SHORTEST_PAUSE;
    while [UNREACHABLE, PROTOCOL].contains(&failure.code()) {
        let text = plain(failure.text());
        output::note(format_args!("levada: {text}; trying again in {} s", pause.as_secs()));
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
        match at.open().await {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Show who published and took back what
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada catalogue log --limit 20")]
pub struct Log {
    /// At most so many entries, the newest
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

const LOG: &[&str] = &["time", "identity", "action", "outcome", "object", "version"];

pub async fn log(arguments: Log) -> Outcome {
    let mut connection = arguments.at.open().await?;
    let mut entries = Vec::new();
    let each = |entry: Logged| {
        entries.push(entry);
        Ok::<_, Failure>(())
    };
    let read = connection.caller.audit(arguments.limit, each).await;
    connection.close().await;
    read?;
    if arguments.json {
        let entries: Vec<Value> = entries.iter().map(describe_entry).collect();
        output::json(json!({ "log": entries }))?;
        return Ok(0);
    }
    output::columns(LOG, &entries.iter().map(entry_row).collect::<Vec<_>>())?;
    Ok(0)
}

fn who(entry: &Logged) -> Option<Identity> {
    Identity::try_from(entry.identity.as_slice()).ok()
}

fn describe_entry(entry: &Logged) -> Value {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    json!({
        "id": entry.number,
        "time": entry.time,
        "identity": who(entry).map(|who| who.to_string()),
        "action": entry.action,
        "outcome": entry.outcome,
        "object": text(&entry.key),
        "version": text(&entry.version),
        "text": entry.text,
    })
}

fn entry_row(entry: &Logged) -> Vec<String> {
    let shown = |text: &String| if text.is_empty() { "-".into() } else { plain(text) };
    vec![
        output::time(UnixTime(entry.time)),
        who(entry).map_or_else(|| "owner".into(), |who| who.short()),
        plain(&entry.action),
        plain(&entry.outcome),
        shown(&entry.key),
        shown(&entry.version),
    ]
}
