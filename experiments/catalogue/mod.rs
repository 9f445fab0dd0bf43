//! The experiment on the catalogue: response time and rate, compared with nginx serving the same
//! bytes.

mod balanced;
mod bench;
mod bounds;
mod deployment;
mod fetch;
mod figures;
mod generator;
mod large;
pub mod levada;
mod load;
mod nginx;
mod objects;
mod publisher;
mod report;
mod saturation;
mod server;
mod spread;
mod sweep;
mod targets;
mod wrk;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use levada_harness::Options;

use crate::measuring::Outcome;
use crate::table::Table;

/// The experiment's name in rows.
const NAME: &str = "catalogue/load";
/// The core of the generator.
const GENERATOR: usize = 0;
/// The core of servers.
const SERVERS: usize = 1;

/// Selects the experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Response time, rate and errors over the imposed rate, for a descriptor and a package of 153
    /// kB
    Load(Box<load::Arguments>),
    /// All parts of `load`
    All(Options),
    /// A catalogue on several nodes that share an engine: reading, publishing, and what happens
    /// when servers end
    Spread(spread::Arguments),
    /// Draw the figures again from the rows in a folder
    Figures {
        /// The folder of the rows
        dir: PathBuf,
    },
    /// Print the rows in a folder as tables in Markdown
    Report {
        /// The folder of the rows
        dir: PathBuf,
    },
}

/// Draws the figures of the rows in a folder, into that folder.
pub use figures::draw;

/// Every table that the rows in a folder allow.
pub fn tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    let mut tables = report::tables(folder)?;
    tables.extend(spread::tables(folder)?);
    Ok(tables)
}

/// Runs the experiment.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.experiment {
        Experiment::Load(arguments) => conclude(&arguments.shared, load::run(&arguments)?),
        Experiment::All(shared) => {
            let all = load::Arguments::all(shared);
            conclude(&all.shared, load::run(&all)?)
        }
        Experiment::Spread(arguments) => {
            let outcome = spread::run(&arguments)?;
            outcome.conclude(&arguments.shared, |_| Ok(()), spread::table)
        }
        Experiment::Figures { dir } => figures::draw(&dir),
        Experiment::Report { dir } => crate::table::print(&tables(&dir)?),
    }
}

fn conclude(shared: &Options, outcome: Outcome) -> anyhow::Result<()> {
    outcome.conclude(shared, figures::draw, targets::table)
}
