//! `levada catalogue`: publishes and reads descriptors and packages.

mod at;
mod connection;
mod export;
mod exported;
mod files;
mod get;
// Only the import of a folder of the reTHINK catalogue uses all of it.
#[cfg_attr(not(feature = "rethink"), allow(dead_code))]
mod import;
mod list;
mod log;
mod maintenance;
mod nodes;
mod object;
mod own_store;
mod publish;
mod stored;
mod swarm;
mod watch;
mod web;

use crate::failure::Outcome;
use clap::{Args, Subcommand};

/// Publish and read descriptors, and the packages of code behind them
///
/// A catalogue stores descriptors in immutable versions, and their packages. Without --at it is the
/// catalogue of this home: through its running node if there is one, directly otherwise. A
/// catalogue on several nodes is written as --at a/catalogue,b/catalogue.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue publish hyperty/Connector@1.2.0 connector.json --package connector.js
  levada catalogue ls
  levada catalogue get hyperty/Connector@^1 --package connector.js --at hub/catalogue
  levada catalogue serve")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Serve(maintenance::Serve),
    Publish(publish::Publish),
    Yank(publish::Yank),
    Get(get::Get),
    Ls(list::Ls),
    Search(list::Search),
    Watch(watch::Watch),
    Log(log::Log),
    Import(import::Import),
    Export(export::Export),
    Verify(maintenance::Verify),
    Gc(maintenance::Gc),
}

impl Arguments {
    /// Whether it runs a node, whose configuration says what is logged.
    pub fn serves(&self) -> bool {
        matches!(self.action, Action::Serve(_))
    }
}

pub async fn run(arguments: Arguments, verbose: u8) -> Outcome {
    match arguments.action {
        Action::Serve(arguments) => maintenance::serve(arguments, verbose).await,
        Action::Publish(arguments) => publish::publish(arguments).await,
        Action::Yank(arguments) => publish::yank(arguments).await,
        Action::Get(arguments) => get::get(arguments).await,
        Action::Ls(arguments) => list::ls(arguments).await,
        Action::Search(arguments) => list::search(arguments).await,
        Action::Watch(arguments) => watch::watch(arguments).await,
        Action::Log(arguments) => log::log(arguments).await,
        Action::Import(arguments) => import::import(arguments).await,
        Action::Export(arguments) => export::export(arguments).await,
        Action::Verify(arguments) => maintenance::verify(arguments).await,
        Action::Gc(arguments) => maintenance::gc(arguments).await,
    }
}
