//! `levada peers`: shows and edits the pinned names.

use crate::abbreviation::expand;
use crate::failure::{Failure, Outcome, USAGE};
use crate::identity::nickname;
use crate::output::{self, Cell, Wide, plain};
use clap::{Args, Subcommand};
use levada_client::Target;
use levada_core::{Clock, Identity, SystemClock};
use levada_home::Home;
use levada_home::address::shown;
use levada_home::known::{Known, PinError, RenameError};
use serde_json::{Value, json};

/// Show which name stands for which key here, or change that
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada peers ls
  levada peers add bob lv…
  levada peers rename alpha cellar
  levada peers forget alpha")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show every name that stands for a key here
    #[command(after_help = "Example:
  levada peers ls --json")]
    Ls {
        #[command(flatten)]
        wide: Wide,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Let a name stand for an identity here; compare the key yourself before
    #[command(after_help = "Examples:
  levada peers add bob lv…
  levada peers add alpha lv…@192.0.2.1:5382")]
    Add {
        /// The name
        #[arg(value_name = "NAME", value_parser = nickname)]
        name: String,

        /// The identity, as `levada id` prints it there, or as the tables here abbreviate it; after
        /// an @ the address of its node, if it has one
        #[arg(value_name = "IDENTITY[@HOST:PORT]")]
        target: String,
    },
    /// Rename a pinned node
    #[command(after_help = "Example:
  levada peers rename alpha cellar")]
    Rename {
        /// The current name
        #[arg(value_name = "OLD")]
        old: String,

        /// The new name
        #[arg(value_name = "NEW", value_parser = nickname)]
        new: String,
    },
    /// Remove a name; its next use asks for confirmation again
    #[command(after_help = "Example:
  levada peers forget alpha")]
    Forget {
        /// The name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub async fn run(arguments: Arguments) -> Outcome {
    let known = Known::open(&Home::open()?.known_db())?;
    match arguments.action {
        Action::Ls { wide, json } => list(&known, wide, json),
        Action::Add { name, target } => {
            let target: Target = expand(&target).await?.parse()?;
            add(&known, &name, &target)
        }
        Action::Rename { old, new } => rename(&known, &old, &new),
        Action::Forget { name } => forget(&known, &name),
    }
}

fn list(known: &Known, wide: Wide, json: bool) -> Outcome {
    let pins = known.names()?;
    if json {
        let peers: Vec<Value> = pins
            .iter()
            .map(|pin| {
                json!({
                    "name": pin.name,
                    "identity": pin.identity.to_string(),
                    "addresses": pin.addresses.iter().map(|one| shown(one)).collect::<Vec<_>>(),
                    "added": pin.added.0,
                })
            })
            .collect();
        output::json(json!({ "peers": peers }))?;
        return Ok(0);
    }
    if pins.is_empty() {
        output::note("no name is pinned here yet: `levada ls` shows the nodes of this network");
        return Ok(0);
    }
    let row = |pin: &levada_home::known::Pin| {
        let addresses: Vec<String> = pin.addresses.iter().map(|one| plain(shown(one))).collect();
        let key = Cell::key(&pin.identity.to_string(), None);
        let time = Cell::Time(pin.added);
        vec![plain(&pin.name).into(), key, time, addresses.join(", ").into()]
    };
    output::columns(
        &["name", "identity", "added", "addresses"],
        &pins.iter().map(row).collect::<Vec<_>>(),
        wide,
    )?;
    Ok(0)
}

fn add(known: &Known, name: &str, target: &Target) -> Outcome {
    let identity = target.identity;
    if let Some(pin) = known.by_identity(&identity)?.filter(|pin| pin.name != name) {
        let other = pin.name;
        return Err(Failure::denied(format!(
            "{identity} is known here as `{other}`: `levada peers rename {other} {name}` changes that"
        )));
    }
    match known.pin(name, &identity, &target.addresses, SystemClock.now()) {
        Ok(()) => {}
        Err(PinError::Conflict { name, known }) => return Err(taken(&name, &known)),
        Err(PinError::Store(error)) => return Err(error.into()),
        Err(refused) => return Err(Failure::denied(refused)),
    }
    output::note(format_args!("`{name}` stands for {identity} here."));
    Ok(0)
}

fn taken(name: &str, known: &Identity) -> Failure {
    Failure::denied(format!(
        "`{name}` stands for {known} already: choose another name, or `levada peers forget {name}` first"
    ))
}

fn rename(known: &Known, old: &str, new: &str) -> Outcome {
    known.rename(old, new).map_err(|error| match error {
        RenameError::Unknown(_) => unknown(old),
        RenameError::Taken { name, known } => taken(&name, &known),
        RenameError::Store(error) => error.into(),
    })?;
    output::note(format_args!("`{}` is known here as `{new}`.", plain(old)));
    Ok(0)
}

fn forget(known: &Known, name: &str) -> Outcome {
    let Some(pin) = known.by_name(name)? else { return Err(unknown(name)) };
    if !known.forget(name)? {
        return Err(unknown(name));
    }
    let name = plain(name);
    let identity = pin.identity;
    output::note(format_args!("`{name}` no longer stands for {identity}."));
    Ok(0)
}

fn unknown(name: &str) -> Failure {
    let name = plain(name);
    Failure::new(USAGE, format!("no node is known here as `{name}`: see `levada peers ls`"))
}
