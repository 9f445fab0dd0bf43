//! `levada catalogue ls` and `search`.

use std::str::FromStr;

use clap::Args;
use levada_catalogue::model::{Key, Kind, Published};
use levada_core::wire::catalogue::Detail;
use levada_home::Home;
use levada_services::catalogue::Item;
use serde_json::{Value, json};

use super::at::At;
use super::connection::CatalogueConnection;
use super::object::{HEADING, describe, row};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Cell, Wide, plain};
use crate::seen::note_objects;

/// `TYPE` or `TYPE/NAME`.
#[derive(Clone, Debug)]
enum Selection {
    Kind(Kind),
    Object(Key),
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains('/') {
            true => text.parse::<Key>().map(Self::Object).map_err(|error| error.to_string()),
            false => text.parse::<Kind>().map(Self::Kind).map_err(|error| error.to_string()),
        }
    }
}

/// List objects, or the versions of one object
///
/// For each object the newest version that is not yanked is shown.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue ls
  levada catalogue ls hyperty --prefix acme.
  levada catalogue ls hyperty/Connector --json")]
pub struct Ls {
    /// A type (dataschema, hyperty, idp-proxy, package, protocolstub, runtime, service), or one object
    #[arg(value_name = "TYPE[/NAME]")]
    selection: Option<Selection>,

    /// Only objects whose names begin with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,

    /// The maximum number of objects; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: u32,

    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn ls(arguments: Ls) -> Outcome {
    let list = async |connection: &mut CatalogueConnection| match &arguments.selection {
        Some(Selection::Object(key)) => versions(connection, key).await,
        Some(Selection::Kind(kind)) => objects(connection, Some(*kind), &arguments).await,
        None => objects(connection, None, &arguments).await,
    };
    print(arguments.at.run(list).await?, arguments.limit, arguments.wide, arguments.json)
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

/// An object and the version that is shown; `None` if all versions are yanked.
struct Shown {
    key: Key,
    version: Option<Published>,
}

/// One more than is shown, to detect that there are more.
fn one_more(limit: u32) -> u64 {
    if limit == 0 { 0 } else { u64::from(limit) + 1 }
}

fn print(mut found: Vec<Shown>, limit: u32, wide: Wide, json: bool) -> Outcome {
    let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let more = found.len() > most;
    found.truncate(most);
    if let Ok(home) = Home::open() {
        note_objects(&home, found.iter().map(|one| one.key.to_string()));
    }
    if json {
        let objects: Vec<Value> = found.iter().map(Shown::describe).collect();
        output::json(json!({ "objects": objects, "more": more }))?;
        return Ok(0);
    }
    if found.is_empty() {
        output::note("note: nothing found");
        return Ok(0);
    }
    output::columns(HEADING, &found.iter().map(Shown::row).collect::<Vec<_>>(), wide)?;
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

    fn row(&self) -> Vec<Cell> {
        match &self.version {
            Some(version) => row(version),
            None => {
                let object = plain(&self.key.to_string());
                let none = || Cell::text("-");
                vec![object.into(), none(), Cell::state("yanked"), none(), none(), none()]
            }
        }
    }
}

/// Search objects by words of their names and descriptors
///
/// An object is found if it contains every word; the last one may be a prefix. Objects whose names
/// contain the words come first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue search video codec
  levada catalogue search connect --type hyperty --json")]
pub struct Search {
    /// The words to search for
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,

    /// Only objects of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,

    /// The maximum number of objects; 0 for all
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,

    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn search(arguments: Search) -> Outcome {
    let query = arguments.words.join(" ");
    let limit = one_more(arguments.limit);
    let search = async |connection: &mut CatalogueConnection| {
        let mut found = Vec::new();
        let each = |item: Item| {
            found.push(Shown { key: item.key, version: item.newest });
            Ok::<_, Failure>(())
        };
        connection.caller.search(&query, arguments.kind, limit, each).await?;
        Ok(found)
    };
    print(arguments.at.run(search).await?, arguments.limit, arguments.wide, arguments.json)
}
